"""State in the canonical form: tables are read back as exactly the same values."""

import datetime as dt
import math
from collections import OrderedDict
from decimal import Decimal
from enum import Enum

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.effort import examples
from tests.memory_store import MemoryStore
from tests.properties.strategies import LONG, Point, Reading
from tidegate.core.errors import CorruptCheckpoint
from tidegate.core.modes import SavepointFormat
from tidegate.state.backend import FrozenState, PayloadForm, StateChunk, StateMetadata
from tidegate.state.canonical.shape_choice import choose_shape, infer
from tidegate.state.columns import from_bytes, to_bytes
from tidegate.state.descriptors import ListStateDescriptor, MapStateDescriptor, ValueStateDescriptor
from tidegate.state.keys.key_groups import KeyGroupRange, range_of
from tidegate.state.memory.backend import HashMapBackend
from tidegate.state.rocksdb.backend import RocksDBBackend
from tidegate.state.snapshot.reader import StoredImage, resolver_in
from tidegate.state.snapshot.writer import FileTarget, SnapshotWriter, TableDirectory
from tidegate.types.instant import Instant
from tidegate.types.record_shapes import shape_of_document
from tidegate.types.row import Row, RowKind
from tidegate.types.shapes import Misfit
from tidegate.types.typeinfo import Types

GROUPS = 16
ALL = KeyGroupRange(0, GROUPS)
MANY = examples(50)
FEW = examples(25)


class Colour(Enum):
    RED = 1


TEXT = st.text(max_size=4) | st.text(st.characters(categories=["Cs"]), max_size=2)
SINGLE = [
    st.integers(),
    LONG,
    st.floats(),
    st.booleans(),
    TEXT,
    st.binary(max_size=4),
    st.dates(),
    st.times(),
    st.datetimes(),
    st.datetimes(timezones=st.sampled_from([dt.UTC, dt.timezone(dt.timedelta(hours=2))])),
    st.timedeltas(),
    st.decimals(),
    st.uuids(),
    st.builds(Instant, LONG, st.integers(0, 999_999_999)),
    st.sampled_from(Colour),
]
"""Values of one type each."""
KEYS = [
    TEXT,
    LONG,
    st.none() | st.integers(),
    st.floats(allow_nan=False),
    st.tuples(TEXT, LONG),
    st.tuples(TEXT, st.none() | st.tuples(st.booleans(), st.dates())),
    st.builds(Point, LONG, LONG),
    st.builds(lambda a, b: Row(a=a, b=b), TEXT, LONG),
    st.builds(Row, TEXT, st.none() | LONG),
    st.decimals(allow_nan=False),
    st.uuids(),
    st.one_of(TEXT, LONG, st.tuples(LONG)),
]


def nested(inner):
    optional = inner | st.none()
    return [
        st.lists(optional, max_size=3),
        st.dictionaries(TEXT, optional, max_size=3),
        st.dictionaries(LONG | st.none(), optional, max_size=2),
        st.tuples(optional, LONG),
        st.tuples(),
        st.builds(lambda a, b: Row(a=a, b=b), optional, TEXT),
        st.builds(Row, optional),
        st.builds(lambda a: Row.of_kind(RowKind.DELETE, a), LONG),
        st.builds(Point, LONG, inner),
        st.builds(Reading, TEXT, inner),
        st.builds(OrderedDict, st.dictionaries(TEXT, inner, max_size=2)),
        st.frozensets(LONG, max_size=2),
    ]


@st.composite
def kinds_of_values(draw):
    """A strategy for values of mostly one type, of some depth."""
    chosen = draw(st.sampled_from(SINGLE))
    for _ in range(draw(st.integers(0, 2))):
        chosen = draw(st.sampled_from(nested(chosen)))
    if draw(st.integers(0, 4)) == 0:
        chosen = chosen | draw(st.sampled_from(SINGLE))
    return chosen


def same(one, other):
    """Whether two values and their types are the same; NaN equals NaN."""
    if type(one) is not type(other):
        return False
    match one:
        case float():
            return one.hex() == other.hex() if one == one else math.isnan(other)
        case Decimal():
            return one.compare_total(other) == 0
        case list() | tuple() | Row():
            return len(one) == len(other) and all(map(same, one, other)) and _alike(one, other)
        case dict():
            return all(map(same, one, other)) and all(map(same, one.values(), other.values()))
        case Reading():
            return same(one.sensor, other.sensor) and same(one.value, other.value)
        case dt.datetime():
            return one == other and one.utcoffset() == other.utcoffset()
    return one == other


def _alike(one, other):
    return not isinstance(one, Row) or (
        one._fields == other._fields and one.get_row_kind() is other.get_row_kind()
    )


@MANY
@given(kinds_of_values().flatmap(lambda values: st.lists(values | st.none(), max_size=5)))
def test_what_a_shape_takes_it_gives_back(values):
    shape = infer(values)
    if shape is None or not shape.is_exact:
        return
    try:
        column = shape.encode(values)
    except Misfit:
        return
    column.validate(full=True)
    again = shape_of_document(shape.document())
    assert again == shape
    decoded = again.decode(column.slice(0))
    assert all(map(same, values, decoded))
    assert all(map(same, values[1:], again.decode(column.slice(1))))


@MANY
@given(kinds_of_values().flatmap(lambda values: st.lists(values, min_size=1, max_size=5)))
def test_every_value_has_a_column_that_can_be_read(values):
    shape = choose_shape(values)
    column = shape.encode(values)
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"value": column}), sink)
    assert pq.read_table(pa.BufferReader(sink.getvalue()))["value"].type == column.type


class Frozen(FrozenState):
    """Given entries."""

    max_parallelism = GROUPS
    key_groups = ALL

    def __init__(self, chunks, metadata):
        self._chunks = chunks
        self.metadata = (metadata,)

    def chunks(self, key_groups=None):
        return iter(self._chunks)

    def release(self):
        pass


def stored(frozen, store):
    writer = SnapshotWriter(FileTarget(store, "sp", 0, format=SavepointFormat.CANONICAL))
    handle = writer.write_keyed(frozen, ALL, {}, TableDirectory("an operator", 0))
    writer.close()
    return StoredImage(handle, resolver_in(store, "sp"))


def put(backend, key, values, timers):
    [backend.place] = backend.places_of([key])
    backend.current_key = key
    value, items, entries = states(backend)
    for change, new in zip((value.update, items.update, entries.put_all), values, strict=True):
        if new is not None:
            change(new)
    for time in timers:
        backend.event_timers.register(time, key, backend.place)


def states(backend, type_info=None):
    value = backend.value_state(ValueStateDescriptor("value", type_info))
    return (
        value,
        backend.list_state(ListStateDescriptor("list", type_info)),
        backend.map_state(MapStateDescriptor("map", Types.STRING(), type_info)),
    )


def content(backend):
    """The stored values by key, and the timers."""
    found = {}
    for name, state in zip(("value", "list", "map"), states(backend), strict=True):
        keys = list(backend.keys(name))
        places = backend.places_of(keys)
        for key, backend.place in zip(keys, places, strict=True):
            if name == "map":
                found[name, key] = dict(state.items())
            else:
                found[name, key] = state.value() if name == "value" else list(state.get())
    return found, sorted((time, repr(key)) for time, key in _timers(backend))


def _timers(backend):
    due = []
    backend.ready_timers(backend.event_timers, 2**62)
    while (timer := backend.event_timers.pop_due(2**62)) is not None:
        due.append((timer.timestamp, timer.key))
    return due


@st.composite
def keyed_content(draw):
    keys = draw(st.sampled_from(KEYS))
    values = draw(kinds_of_values())
    entry = st.tuples(
        st.none() | values,
        st.none() | st.lists(values, min_size=1, max_size=2),
        st.none() | st.dictionaries(st.text(max_size=2), values, min_size=1, max_size=2),
    )
    return draw(st.dictionaries(keys, st.tuples(entry, st.sets(LONG, max_size=2)), max_size=6))


@pytest.mark.parametrize("after", [HashMapBackend, RocksDBBackend])
@pytest.mark.parametrize("before", [HashMapBackend, RocksDBBackend])
@FEW
@given(entries=keyed_content(), parallelism=st.integers(1, 3))
def test_state_of_any_types_is_restored_in_any_backend_at_any_parallelism(
    before, after, entries, parallelism
):
    first = before(ALL, GROUPS)
    states(first)
    for key, (values, timers) in entries.items():
        put(first, key, values, timers)
    frozen = first.freeze()
    image = stored(frozen, MemoryStore())
    frozen.release()
    expected, expected_timers = content(first)
    first.close()
    found, found_timers = {}, []
    for subtask in range(parallelism):
        restored = after(range_of(subtask, parallelism, GROUPS), GROUPS)
        restored.restore([image])
        its, timers = content(restored)
        assert not found.keys() & its.keys()
        found |= its
        found_timers += timers
        restored.close()
    assert found.keys() == expected.keys()
    assert all(same(found[key], value) for key, value in expected.items())
    kept = {key: key for key in found}
    assert all(same(kept[key], key) for key in expected)
    assert sorted(found_timers) == expected_timers


COLUMNS = [
    (pa.int64(), LONG),
    (pa.int8(), st.integers(-128, 127)),
    (pa.uint64(), st.integers(0, 2**64 - 1)),
    (pa.string(), st.text(max_size=3)),
    (pa.string_view(), st.text(max_size=3)),
    (pa.large_binary(), st.binary(max_size=3)),
    (pa.decimal256(76, 0), st.integers(-(10**75), 10**75).map(Decimal)),
    (pa.decimal128(9, 2), st.decimals(-1000, 1000, places=2)),
    (pa.timestamp("ns"), LONG.filter(lambda n: n > -(2**63))),
    (pa.timestamp("us", "UTC"), st.datetimes(timezones=st.just(dt.UTC))),
    (pa.duration("us"), st.integers(-(2**62), 2**62)),
    (pa.float16(), st.floats(width=16, allow_nan=False)),
    (pa.date32(), st.dates()),
    (pa.time32("ms"), st.integers(0, 86_399_999)),
    (pa.time64("us"), st.integers(0, 10**9)),
    (pa.bool_(), st.booleans()),
]


@st.composite
def columns(draw, rows):
    kind, values = draw(st.sampled_from(COLUMNS))
    found = draw(st.lists(st.none() | values, min_size=rows, max_size=rows))
    if pa.types.is_time32(kind):
        return pa.array(found, pa.int32()).view(kind)
    if kind in (pa.timestamp("ns"), pa.duration("us"), pa.time64("us")):
        return pa.array(found, pa.int64()).view(kind)
    return pa.array(found, kind)


@MANY
@given(st.data(), st.integers(1, 5), st.integers(1, 3), st.integers(0, 3))
def test_columnar_state_keeps_the_types_of_its_columns(data, rows, width, others):
    key_columns = [data.draw(columns(rows)) for _ in range(width)]
    value_columns = [data.draw(columns(rows)) for _ in range(others)]
    names = [*(f"key{i}" for i in range(width)), *(f"column{i}" for i in range(others))]
    payload = to_bytes([*key_columns, *value_columns], names)
    metadata = StateMetadata("sum of field 1", "a sum", PayloadForm.ARROW)
    image = stored(
        Frozen([StateChunk(metadata.name, ((3, rows),), payload)], metadata), MemoryStore()
    )
    [chunk] = image.chunks(KeyGroupRange(3, 4))
    assert from_bytes(chunk.payload).equals(from_bytes(payload))
    assert list(image.chunks(KeyGroupRange(4, 9))) == []


@FEW
@given(st.data())
def test_a_changed_byte_of_a_table_is_found_wherever_it_is(data):
    backend = HashMapBackend(ALL, GROUPS)
    for number in range(20):
        put(backend, f"key {number}", (number, [number], None), [number])
    store = MemoryStore()
    image = stored(backend.freeze(), store)
    path = data.draw(st.sampled_from(sorted(p for p in store.list() if p.endswith("parquet"))))
    stored_bytes = bytearray(store.read(path))
    place = data.draw(st.integers(0, len(stored_bytes) - 1))
    if data.draw(st.booleans()):
        stored_bytes[place] ^= data.draw(st.integers(1, 255))
    else:
        del stored_bytes[place:]
    store.put(path, bytes(stored_bytes))
    with pytest.raises(CorruptCheckpoint, match="parquet is corrupt"):
        list(image.chunks())
