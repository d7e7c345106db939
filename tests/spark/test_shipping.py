"""Scripts, modules beside them and notebooks: what they define is there in the slots."""

import textwrap
from ast import literal_eval

import pytest

from tests.spark.scripts import START, output_of

pytestmark = [pytest.mark.spark, pytest.mark.slow]

NEIGHBOUR = """
from dataclasses import dataclass

@dataclass(frozen=True)
class Neighbour:
    number: int

def next_door(number):
    return Neighbour(number)
"""

DEFINITIONS = START + textwrap.dedent(
    """
    import collections
    import dataclasses
    import enum
    import typing

    from neighbour import Neighbour, next_door

    @dataclasses.dataclass(frozen=True)
    class Event:
        number: int

        @classmethod
        def of(cls, number):
            return cls(number)

    class Pair(typing.NamedTuple):
        left: int
        right: int

    OldPair = collections.namedtuple("OldPair", "left right")

    class Colour(enum.Enum):
        RED = 1
        BLUE = 2

    class Outer:
        class Inner:
            def __init__(self, number):
                self.number = number

    Inner = Outer.Inner
    OFFSET = 10

    def helper(number):
        return number + OFFSET

    class Chained(Event):
        '''A class that is only reached through another one.'''

    class Maker:
        made = Chained

    def local_class():
        @dataclasses.dataclass(frozen=True)
        class Local:
            number: int

        return Local

    LocalOne, LocalTwo = local_class(), local_class()

    def make(number):
        return (
            Event.of(helper(number)),
            Pair(number, -number),
            OldPair(number, number),
            Colour.RED if number % 2 else Colour.BLUE,
            Inner(number),
            Maker.made(number),
            LocalOne(number),
            next_door(number),
        )

    def check(record):
        event, pair, old, colour, inner, chained, local, neighbour = record
        assert type(event) is Event and type(pair) is Pair and type(old) is OldPair
        assert type(inner) is Inner and type(chained) is Chained and type(local) is LocalOne
        assert type(neighbour) is Neighbour and neighbour == next_door(pair.left)
        assert LocalTwo(1).number == 1
        assert colour is (Colour.RED if pair.left % 2 else Colour.BLUE)
        return event.number, record

    def show(run):
        numbers = mapped(lambda event: event.number, read([Event(1), Event(2)]))
        stream = mapped(check, Upstream(mapped(make, numbers), Broadcast()))
        (results,) = results_of(run(graph_of(collected(stream), parallelism=2)))
        for number, record in results:
            check(record)
        print(sorted(number for number, _ in results))
    """
)

WITH_GUARD = DEFINITIONS + textwrap.dedent(
    """
    if __name__ == "__main__":
        show(start)
        show(start)
    """
)
WITHOUT_GUARD = DEFINITIONS + "show(start)\nshow(start)\n"
NOTEBOOK = """
import sys, types
main = sys.modules["__main__"]
del main.__file__
for cell in {cells!r}:
    exec(cell, main.__dict__)
"""


def results(text):
    return [literal_eval(line) for line in text.splitlines()]


@pytest.fixture
def directory(tmp_path):
    (tmp_path / "neighbour.py").write_text(NEIGHBOUR)
    return tmp_path


@pytest.mark.parametrize(
    ("text", "cluster"),
    [(WITH_GUARD, "mini"), (WITHOUT_GUARD, "mini"), (WITHOUT_GUARD, "spark")],
    ids=["guard", "no guard", "on Spark"],
)
def test_what_a_script_defines_is_there_in_the_slots(directory, temporary, text, cluster):
    script = directory / "job.py"
    script.write_text(text)
    assert results(output_of(script, cluster, temporary)) == [[11, 11, 12, 12]] * 2


@pytest.mark.parametrize("cluster", ["mini", "spark"])
def test_what_a_notebook_defines_is_there_in_the_slots(directory, temporary, cluster):
    redefined = "OFFSET = 20\nclass Colour(enum.Enum):\n    RED = 3\n    BLUE = 4\n"
    cells = [DEFINITIONS, "show(start)", redefined, "show(start)"]
    script = directory / "kernel.py"
    script.write_text(NOTEBOOK.format(cells=cells))
    shown = results(output_of(script, cluster, temporary))
    assert shown == [[11, 11, 12, 12], [21, 21, 22, 22]]
