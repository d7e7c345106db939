import gc
import os
import pickle
import shutil
import subprocess
import sys
import threading
import types
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.programs import collected, graph_of, keyed, mapped, read, settings_of
from tidegate.core.errors import NotSerializable
from tidegate.core.ids import new_job_id
from tidegate.graph.logical import Upstream
from tidegate.graph.partitioning import Custom
from tidegate.operators.functions import MapFunction
from tidegate.operators.stateless import MapOperator
from tidegate.state.keys.selection import select_key
from tidegate.transport.shipping import MAIN_MODULE, pack, to_slot, unpack

ROOT = Path(__file__).parents[3]


def shipped(*sinks):
    return pack(new_job_id(), graph_of(*sinks), settings_of().as_mapping())


def operators(package, directory):
    """The operators of a package by name, as a slot would make them."""
    job = unpack(package, directory)
    return {
        chained.name: job.operator(chained.operator_id)
        for vertex in job.graph.vertices
        for chained in vertex.chain
    }


def test_operators_arrive_as_copies(tmp_path):
    offset = 10
    package = shipped(collected(mapped(lambda x: x + offset, read([1]))))
    first, second = (operators(package, tmp_path)["map"] for _ in range(2))
    assert isinstance(first, MapOperator)
    assert first is not second
    assert first.function(1) == 11


def test_each_subtask_asks_for_an_operator_of_its_own(tmp_path):
    class Stateful(MapFunction):
        def __init__(self):
            self.seen = []

        def map(self, value):
            return value

    job = unpack(shipped(collected(mapped(Stateful(), read([1])))), tmp_path)
    chained = job.graph.vertices[0].chain[1]
    one, other = job.operator(chained.operator_id), job.operator(chained.operator_id)
    assert one.function.seen is not other.function.seen


def test_the_graph_arrives_without_its_operators(tmp_path):
    package = shipped(collected(mapped(abs, keyed(abs, read([1])))))
    job = unpack(package, tmp_path)
    assert [vertex.name for vertex in job.graph.vertices] == ["source", "map -> results"]
    assert all(c.operator is None for vertex in job.graph.vertices for c in vertex.chain)
    assert job.settings["tidegate.step.attempts"] == 3


def with_lock(wrap):
    lock = threading.Lock()
    return wrap(lambda value: lock and value)


@pytest.mark.parametrize(
    ("sink", "name"),
    [
        (with_lock(lambda f: collected(mapped(f, read([1]), name="guarded"))), "'guarded'"),
        (collected(read([threading.Lock()], name="locks")), "'locks'"),
        (with_lock(lambda f: collected(mapped(abs, keyed(f, read([1]))))), "key selector"),
        (
            with_lock(lambda f: collected(Upstream(read([1]), Custom(f, select_key(abs))))),
            "partitioner",
        ),
    ],
    ids=["function", "source", "key selector", "partitioner"],
)
def test_what_cannot_travel_is_named(sink, name):
    with pytest.raises(NotSerializable, match=rf"{name}.*lock.*Create connections.*in open\(\)"):
        shipped(sink)


def test_local_classes_are_found_by_name_once_they_were_shipped(tmp_path):
    @dataclass
    class Event:
        number: int

    operators(shipped(collected(mapped(Event, read([1])))), tmp_path)
    name = "test_local_classes_are_found_by_name_once_they_were_shipped.Event"
    record = pickle.loads(pickle.dumps(Event(3)))
    assert record == Event(3)
    assert (Event.__module__, Event.__qualname__) == (MAIN_MODULE, name)


def test_a_class_that_was_shipped_before_is_shipped_again(tmp_path):
    class Event:
        pass

    for _ in range(2):
        package = shipped(collected(mapped(lambda x: Event(), read([1]))))
        assert isinstance(operators(package, tmp_path)["map"].function(1), Event)


def test_modules_may_be_imported_while_a_job_is_packed(monkeypatch):
    monkeypatch.setattr(sys, "modules", sys.modules.copy())

    def another_is_imported(*_):
        name = f"imported_{len(sys.modules)}"
        sys.modules[name] = types.ModuleType(name)

    before = gc.get_threshold()
    gc.callbacks.append(another_is_imported)
    gc.set_threshold(1)
    try:
        shipped(collected(read([1])))
    finally:
        gc.set_threshold(*before)
        gc.callbacks.remove(another_is_imported)


def test_splits_may_hold_records_of_shipped_classes(tmp_path):
    @dataclass
    class Event:
        number: int

    operators(shipped(collected(mapped(Event, read([1])))), tmp_path)
    wire = to_slot([Event(1)])
    assert b"Event" in wire and b"number" in wire
    assert len(wire) < 300, "by name, not with the code of the class"
    assert pickle.loads(wire) == [Event(1)]


# --- in other processes -------------------------------------------------------------------------

PROGRAM = """
import dataclasses, enum, sys
from neighbour import next_door
from tests.programs import collected, graph_of, mapped, read, settings_of
from tidegate.core.ids import new_job_id
from tidegate.transport.shipping import pack

@dataclasses.dataclass
class Event:
    number: int

class Colour(enum.Enum):
    RED = 1

def make(number):
    return Event(next_door(number)), Colour.RED

job = graph_of(collected(mapped(make, read([1]))))
with open(sys.argv[1], "wb") as file:
    file.write(pack(new_job_id(), job, settings_of().as_mapping()))
"""
SLOT = """
import pickle, sys
from pathlib import Path
from tidegate.transport.shipping import unpack

job = unpack(Path(sys.argv[1]).read_bytes(), Path(sys.argv[2]))
for _ in range(2):
    operator = job.operator(job.graph.vertices[0].chain[1].operator_id)
    record = operator.function(1)
wire = pickle.dumps(record)
assert b"cloudpickle" not in wire
assert pickle.loads(wire) == record
print(record)
"""


def python(text, *arguments, cwd, module=None):
    script = cwd / "script.py"
    if module is not None:
        script = cwd / Path(*module.split(".")).with_suffix(".py")
        script.parent.mkdir(exist_ok=True)
    script.write_text(text)
    program = [str(script)] if module is None else ["-m", module]
    done = subprocess.run(
        [sys.executable, *program, *map(str, arguments)],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


LIBRARY = "def next_door(number):\n    return number + 1\n"
EXPECTED = "(Event(number=2), <Colour.RED: 1>)"


def beside_the_script(driver, package):
    (driver / "neighbour.py").write_text(LIBRARY)
    python(PROGRAM, package, cwd=driver)


def in_a_package(driver, package):
    (driver / "jobs").mkdir()
    (driver / "jobs" / "neighbour.py").write_text(LIBRARY)
    program = PROGRAM.replace("from neighbour", "from jobs.neighbour")
    python(program, package, cwd=driver, module="jobs.main")


def on_a_path_of_its_own(driver, package):
    (driver / "library").mkdir()
    (driver / "library" / "neighbour.py").write_text(LIBRARY)
    path = "import sys\nsys.path.append('library')\n"
    python(path + PROGRAM, package, cwd=driver)


@pytest.fixture(params=[beside_the_script, in_a_package, on_a_path_of_its_own])
def packed(request, tmp_path):
    """A package that a program wrote which imports a module of its own."""
    driver = tmp_path / "driver"
    driver.mkdir()
    package = tmp_path / "package"
    request.param(driver, package)
    return package


@pytest.fixture
def slot(tmp_path):
    directory = tmp_path / "slot"
    directory.mkdir()
    return directory


@pytest.mark.slow
def test_another_process_runs_what_a_program_defines_and_imports(packed, slot):
    assert python(SLOT, packed, slot, cwd=slot) == EXPECTED


@pytest.mark.slow
def test_the_modules_of_a_program_are_there_on_another_machine_too(packed, slot, tmp_path):
    shutil.rmtree(tmp_path / "driver")
    assert python(SLOT, packed, slot, cwd=slot) == EXPECTED
    assert list((slot / "modules").rglob("neighbour.py"))
