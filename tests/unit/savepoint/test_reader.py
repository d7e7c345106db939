"""State read from savepoints and checkpoints, without Spark."""

import datetime as dt
import pickle

import pytest

from tests.effort import some
from tests.jobs import checkpoint_after, on_disk, pairs, summed, totals
from tests.programs import read
from tests.savepoints import restored, stored, use
from tests.taps import Tap
from tidegate import state_reader
from tidegate.core.errors import CorruptCheckpoint, NoCheckpoint, UnknownState
from tidegate.core.modes import SavepointFormat
from tidegate.savepoint import StateSummary
from tidegate.state.descriptors import ListStateDescriptor, MapStateDescriptor, ValueStateDescriptor
from tidegate.state.operator_state import OperatorStateStore
from tidegate.types.row import Row
from tidegate.types.typeinfo import Types

COUNT = ValueStateDescriptor("count", Types.LONG())
ITEMS = ListStateDescriptor("items", Types.STRING())
DAYS = MapStateDescriptor("days", Types.SQL_DATE(), Types.DOUBLE())
KEYS = [("user", number) for number in range(50)]
DAY = dt.date(2026, 1, 1)


def fill(backend):
    count, items, days = (
        backend.value_state(COUNT),
        backend.list_state(ITEMS),
        backend.map_state(DAYS),
    )
    for key in KEYS:
        if use(backend, key):
            number = key[1]
            count.update(number)
            items.add_all(["x"] * (number % 3))
            days.put(DAY, number / 2)
            backend.event_timers.register(number * 1000, key, backend.place)


@pytest.fixture(params=some("hashmap", "rocksdb"))
def backend(request):
    return request.param


@pytest.fixture(params=list(SavepointFormat), ids=lambda format: format.value)
def format(request):
    return request.param


@pytest.fixture
def savepoint(tmp_path, backend, format):
    return stored(tmp_path / "savepoint", {"counts": fill}, backend=backend, format=format)


def test_entries_are_the_keys_and_values_that_were_put(savepoint):
    reader = state_reader(savepoint)
    assert dict(reader.entries("counts", "count")) == {key: key[1] for key in KEYS}
    assert dict(reader.entries("counts", "items")) == {
        key: ["x"] * (key[1] % 3) for key in KEYS if key[1] % 3
    }
    assert dict(reader.entries("counts", "days")) == {key: {DAY: key[1] / 2} for key in KEYS}
    timers = dict(reader.entries("counts", "_timers/event-time"))
    assert timers == {key: key[1] * 1000 for key in KEYS}


def test_operators_and_states_are_listed_with_what_they_hold(tmp_path):
    savepoint = stored(tmp_path / "savepoint", {"counts": fill})
    [operator] = state_reader(savepoint).operators()
    assert (operator.uid, operator.name) == ("counts", "the counts")
    assert (operator.parallelism, operator.max_parallelism) == (2, 128)
    found = {state.name: (state.kind, state.type, state.entries) for state in operator.states}
    assert found == {
        "count": ("value", "Long", 50),
        "items": ("list", "String", 33),
        "days": ("map", "DateTypeInfo to Double", 50),
        "_timers/event-time": ("timers", "milliseconds since 1970", 50),
    }
    assert operator.size == sum(state.size for state in operator.states)


def test_what_a_database_holds_is_not_known_without_reading_it(tmp_path):
    savepoint = stored(
        tmp_path / "savepoint",
        {"counts": fill},
        backend="rocksdb",
        format=SavepointFormat.NATIVE,
    )
    [operator] = state_reader(savepoint).operators()
    assert operator.states[0] == StateSummary(
        "count", "value", "Long", is_keyed=True, entries=None, size=None
    )
    assert operator.size > 0


def test_an_operator_without_uid_is_asked_for_by_its_id(savepoint):
    reader = state_reader(savepoint)
    [operator] = reader.operators()
    assert len(list(reader.entries(operator.operator_id, "count"))) == 50


def test_unknown_names_are_answered_with_the_known_ones(savepoint):
    reader = state_reader(savepoint)
    with pytest.raises(UnknownState) as caught:
        list(reader.entries("count", "count"))
    assert str(caught.value) == (
        f"{savepoint} has no operator with the uid 'count'; it has 'counts'"
    )
    with pytest.raises(UnknownState, match="has no keyed state 'total'; it has 'count', 'it"):
        list(reader.entries("counts", "total"))
    with pytest.raises(UnknownState, match="has no operator state 'x'; it has"):
        reader.elements("counts", "x")


def operator_states(subtask):
    store = OperatorStateStore()
    store.get_list_state(ListStateDescriptor("offsets", Types.LONG())).add_all([subtask, 10])
    rules = store.get_broadcast_state(MapStateDescriptor("rules", Types.STRING(), Types.LONG()))
    rules.put("limit", 5)
    return store.freeze()


def test_operator_state_and_source_positions_are_read(tmp_path):
    savepoint = stored(
        tmp_path / "savepoint",
        {"source": lambda backend: None},
        states={"source": [operator_states(0), operator_states(1)]},
        splits={"source": [{"file": "a", "offset": 3}, Row(file="b", offset=7)]},
    )
    reader = state_reader(savepoint)
    assert reader.elements("source", "offsets") == [(0, 0), (0, 10), (1, 1), (1, 10)]
    assert reader.elements("source", "rules") == [(0, ("limit", 5)), (1, ("limit", 5))]
    [operator] = reader.operators()
    kinds = [(state.name, state.kind, state.type, state.entries) for state in operator.states]
    assert kinds == [
        ("offsets", "split list", "Long", 4),
        ("rules", "broadcast map", "String to Long", 2),
    ]
    assert operator.source_splits == 2
    positions = [(each.uid, each.subtask, each.split) for each in reader.source_positions()]
    assert positions == [
        ("source", 0, {"file": "a", "offset": 3}),
        ("source", 1, Row(file="b", offset=7)),
    ]


def test_a_split_of_a_class_that_is_not_here_is_a_text(tmp_path, monkeypatch):
    split = pickle.dumps(Row(a=1)).replace(b"tidegate.types.row", b"tidegate.types.raw")
    monkeypatch.setattr("tests.savepoints.pickle.dumps", lambda *_: split)
    savepoint = stored(
        tmp_path / "savepoint", {"source": lambda backend: None}, splits={"source": [1]}
    )
    [position] = state_reader(savepoint).source_positions()
    assert "bytes that cannot be loaded here: No module named" in position.split


def test_a_place_without_state_is_named(tmp_path):
    with pytest.raises(NoCheckpoint, match="there is no such directory"):
        state_reader(tmp_path / "nothing")


def test_a_flipped_byte_and_a_missing_file_are_found(tmp_path):
    savepoint = stored(tmp_path / "savepoint", {"counts": fill})
    [file, other] = sorted(savepoint.glob("state/counts/count/*.parquet"))
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    with pytest.raises(CorruptCheckpoint, match=f"{file.name} is corrupt"):
        list(state_reader(savepoint).entries("counts", "count"))
    other.unlink()
    file.unlink()
    with pytest.raises(CorruptCheckpoint, match="expected a file, found none"):
        list(state_reader(savepoint).entries("counts", "count"))


def test_state_moves_between_backends_through_a_savepoint(savepoint):
    for after in ("hashmap", "rocksdb"):
        backend = restored(state_reader(savepoint), "counts", after)
        assert sorted(backend.keys("count")) == KEYS
        backend.close()


def test_a_retained_checkpoint_of_a_job_is_read(tmp_path, start, watch, backend):
    records = pairs(60)
    tap = Tap(records)
    settings = on_disk(tmp_path / "checkpoints", **{"state.backend.type": backend})
    job = start(summed(watch, read(tap)), settings=settings)
    checkpoint_after(job, watch, tap, 40)
    [directory] = (tmp_path / "checkpoints").iterdir()
    reader = state_reader(directory)
    assert dict(reader.entries("sums", "sum")) == totals(records[:40])
    assert [operator.uid for operator in reader.operators() if operator.states] == ["sums"]
