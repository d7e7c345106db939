import pickle

import pytest

from tests.programs import apply, collected, graph_of, read
from tidegate.connectors.source import Source, SplitEnumerator
from tidegate.driver.split_enumerator import SplitAssigner
from tidegate.operators.stateless import MapOperator
from tidegate.protocol.messages import SplitAssignment


class Script(SplitEnumerator):
    """Finds what a script says, call by call, and is exhausted behind it."""

    def __init__(self, found):
        self.found = list(found)
        self.events = []

    def open(self):
        self.events.append("open")

    def next_splits(self, parallelism):
        self.events.append(parallelism)
        return self.found.pop(0)

    def is_exhausted(self):
        return not self.found

    def close(self):
        self.events.append("close")


class Scripted(Source):
    def __init__(self, *found):
        self.enumerator = Script(found)

    def create_enumerator(self):
        return self.enumerator

    def create_reader(self, context):
        raise NotImplementedError


def assigner_of(*sources):
    return SplitAssigner(pipeline(*sources), {})


def pipeline(*sources, parallelism=2):
    streams = [read(source) for source in sources]
    job = graph_of(collected(apply(MapOperator(abs), *streams)), parallelism=parallelism)
    (only,) = job.pipelines
    return only


def test_splits_go_to_the_subtasks_that_the_enumerator_names():
    assigner = assigner_of(Scripted({0: ["a", "b"], 1: ["c"]}))
    assert assigner.assign() == {
        (0, 0): SplitAssignment(splits=("a", "b"), no_more=True),
        (0, 1): SplitAssignment(splits=("c",), no_more=True),
    }


def test_every_subtask_is_notified_once_that_no_more_will_come():
    source = Scripted({1: ["a"]}, {})
    assigner = assigner_of(source)
    assert assigner.assign() == {(0, 1): SplitAssignment(splits=("a",))}
    assert assigner.may_find_more
    assert assigner.assign() == {
        (0, 0): SplitAssignment(no_more=True),
        (0, 1): SplitAssignment(no_more=True),
    }
    assert not assigner.may_find_more
    assert assigner.assign() == {}
    assert source.enumerator.events == ["open", 2, 2]


def test_sources_are_asked_apart():
    assigner = assigner_of(Scripted({0: ["a"]}), Scripted({0: ["b"]}, {1: ["c"]}))
    first = assigner.assign()
    assert first[0, 0] == SplitAssignment(splits=("a",), no_more=True)
    assert first[1, 0] == SplitAssignment(splits=("b",))
    assert assigner.assign() == {
        (1, 0): SplitAssignment(no_more=True),
        (1, 1): SplitAssignment(splits=("c",), no_more=True),
    }


def test_enumerators_are_closed_with_the_attempt():
    source = Scripted({})
    assigner = assigner_of(source)
    assigner.assign()
    assigner.close()
    assert source.enumerator.events == ["open", 2, "close"]


def test_a_source_that_has_ended_is_not_asked_but_keeps_its_state():
    ended, other = Scripted({0: ["a"]}), Scripted({0: ["b"]})
    restored = {0: pickle.dumps("listed"), 1: pickle.dumps("also listed")}
    assigner = SplitAssigner(pipeline(ended, other), restored, ended={0})
    assert {vertex for vertex, _ in assigner.assign()} == {1}
    assert not assigner.may_find_more
    assert ended.enumerator.events == []
    assert assigner.snapshot() == {0: restored[0], 1: pickle.dumps(None, protocol=5)}


def test_all_that_were_created_are_closed_even_if_one_could_not_be_opened():
    good, bad = Scripted({}), Scripted({})
    bad.enumerator.open = lambda: (_ for _ in ()).throw(OSError("no broker"))
    assigner = assigner_of(good, bad)
    with pytest.raises(OSError, match="no broker"):
        assigner.assign()
    assigner.close()
    assert good.enumerator.events[-1] == "close"
    assert bad.enumerator.events == ["close"]
