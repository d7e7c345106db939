"""Keyed state in the canonical form: where the tables are and what their columns say."""

import datetime as dt
import gc
from collections import Counter
from decimal import Decimal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.memory_store import MemoryStore
from tests.properties.strategies import Point, Reading
from tests.savepoints import stored, use
from tidegate.core.errors import SnapshotWriteAborted
from tidegate.core.modes import SavepointFormat
from tidegate.savepoint import state_reader
from tidegate.state.canonical.files import directory_name
from tidegate.state.canonical.shape_choice import choose_shape, infer, shape_of_state
from tidegate.state.chunks import contents_of
from tidegate.state.descriptors import ListStateDescriptor, MapStateDescriptor, ValueStateDescriptor
from tidegate.state.keys.key_groups import KeyGroupRange
from tidegate.state.keys.selection import KeyColumns
from tidegate.state.memory.backend import HashMapBackend
from tidegate.state.rocksdb.backend import RocksDBBackend
from tidegate.state.snapshot.reader import StoredImage, resolver_in
from tidegate.state.snapshot.writer import FileTarget, SnapshotWriter
from tidegate.storage.local import LocalStore
from tidegate.types.instant import Instant
from tidegate.types.row import Row
from tidegate.types.typeinfo import Types

ALL = KeyGroupRange(0, 128)


def table(tmp_path, values, descriptor=None, path="state/op/value"):
    """The table of a value state with one value for each key."""
    descriptor = descriptor or ValueStateDescriptor("value")

    def fill(backend):
        state = backend.value_state(descriptor)
        for key, value in values.items():
            if use(backend, key):
                state.update(value)

    savepoint = stored(tmp_path / "savepoint", {"op": fill}, parallelism=1)
    return pq.read_table(savepoint / path)


def rows(table):
    return {row["key"]: row["value"] for row in table.to_pylist()}


def test_scalars_are_columns_of_their_own_type(tmp_path):
    found = table(tmp_path, {"a": 1, "b": 2}, ValueStateDescriptor("value", Types.LONG()))
    assert found.schema.names == ["key_group", "key", "value", "pickled"]
    assert found.schema.field("value").type == pa.int64()
    assert rows(found) == {"a": 1, "b": 2}
    assert found["pickled"].null_count == 2


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ((1, "a"), {"f0": 1, "f1": "a"}),
        (Row(x=1, y=[2.5]), {"x": 1, "y": [2.5]}),
        (Row(1, None), {"f0": 1, "f1": None}),
        ({"a": (1,)}, [("a", {"f0": 1})]),
        (Instant(3, 4), {"seconds": 3, "nanos": 4}),
        (Decimal("1.50"), "1.50"),
        (dt.time(1, 2), "01:02:00"),
        (2**80, Decimal(2**80)),
    ],
)
def test_values_with_parts_are_structs_lists_and_maps(tmp_path, value, shown):
    found = table(tmp_path, {"k": value})
    assert rows(found) == {"k": shown}
    assert found["pickled"].null_count == 1


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (Point(1, 2), {"x": 1, "y": 2}),
        (Reading("s", 2.5), {"sensor": "s", "value": 2.5}),
        ({1}, "{1}"),
        (Counter("aab"), "Counter({'a': 2, 'b': 1})"),
    ],
)
def test_what_only_pickle_makes_again_can_be_read_beside_it(tmp_path, value, shown):
    found = table(tmp_path, {"k": value})
    assert rows(found) == {"k": shown}
    assert found["pickled"].null_count == 0


def test_a_value_that_is_not_of_the_declared_type_stands_in_the_last_column(tmp_path):
    values = {f"key {number}": float(number) for number in range(20)} | {"odd": 3}
    found = table(tmp_path, values, ValueStateDescriptor("value", Types.DOUBLE()))
    assert found.schema.field("value").type == pa.float64()
    assert found["pickled"].null_count == 20
    reader = state_reader(tmp_path / "savepoint")
    read = dict(reader.entries("op", "value"))
    assert read == values
    assert type(read["odd"]) is int


def test_values_that_expire_have_their_time_beside_them(tmp_path):
    descriptor = ValueStateDescriptor("value", Types.STRING())
    descriptor.enable_time_to_live(dt.timedelta(hours=1))
    found = table(tmp_path, {"k": "x"}, descriptor)
    assert found.schema.field("value").type.names == ["value", "since"]
    undeclared = ValueStateDescriptor("value")
    undeclared.enable_time_to_live(dt.timedelta(hours=1))
    shape = shape_of_state(descriptor)
    assert choose_shape([("x", 1)], None, undeclared.declaration) == shape
    lists, maps = (
        ListStateDescriptor("l", Types.LONG()),
        MapStateDescriptor("m", Types.STRING(), Types.LONG()),
    )
    for each in (lists, maps):
        each.enable_time_to_live(dt.timedelta(hours=1))
    assert choose_shape([[(1, 1)]], None, lists.declaration) == shape_of_state(lists)
    assert choose_shape([{"a": (1, 1)}], None, maps.declaration) == shape_of_state(maps)


@pytest.mark.parametrize(
    "name", ["_hidden", ".", "..", "a/b", "a=b", "a:b", "ü" * 300, "", "a\\b", "x\0"]
)
def test_any_name_is_a_directory_that_spark_sees(name):
    safe = directory_name(name)
    assert safe not in ("", ".", "..")
    assert not set(safe) & set("/\\=:\0")
    assert safe[0] not in "._"
    assert len(safe) < 200


def test_names_that_differ_have_directories_that_differ():
    names = ["_a", "a", "%5Fa", "a" * 300, "a" * 301, "A b"]
    assert len({directory_name(name) for name in names}) == len(names)


def test_a_rescaled_restore_reads_only_the_row_groups_it_needs(tmp_path):
    def fill(backend):
        state = backend.value_state(ValueStateDescriptor("value", Types.LONG()))
        keys = list(range(200_000))
        places = backend.places_of(keys)
        for key, backend.place in zip(keys, places, strict=True):
            state.update(key)

    savepoint = stored(tmp_path / "savepoint", {"op": fill}, parallelism=1)
    reader = state_reader(savepoint)
    [handle] = reader.operator("op").subtasks.values()
    read = []

    class Watched(LocalStore):
        def read(self, path, offset=0, size=None):
            read.append(size)
            return super().read(path, offset, size)

    store = Watched(savepoint.parent)
    image = StoredImage(handle.keyed, lambda file: (store, f"savepoint/{file.name}"))
    backend = HashMapBackend(KeyGroupRange(0, 16), 128)
    backend.restore([image])
    assert len(list(backend.keys("value"))) == pytest.approx(200_000 / 8, rel=0.1)
    [table] = handle.keyed.tables
    assert len(table.row_groups) == 4
    assert len(read) == 2, "the footer and one row group"


def test_what_has_no_type_in_common_has_no_shape_of_its_own():
    assert infer([1, "a"]) is None
    assert infer([(1, 2), (1,)]) is None
    assert infer([()]) is None
    assert infer([None, None]) is not None


@pytest.mark.parametrize("before", [HashMapBackend, RocksDBBackend])
@pytest.mark.parametrize("after", [HashMapBackend, RocksDBBackend])
def test_keys_that_are_columns_stay_columns_of_their_types(before, after):
    columns = KeyColumns([pa.array(["a", "b"]), pa.array([1, 2], pa.int16())], is_tuple=True)
    descriptor = ValueStateDescriptor("value", Types.LONG())
    first, second = before(ALL, 128), after(ALL, 128)
    state = first.value_state(descriptor)
    places = first.places_of(columns.values(), columns)
    for first.place, value in zip(places, [1, 2], strict=True):
        state.update(value)
    store = MemoryStore()
    frozen = first.freeze()
    second.restore([canonical(frozen, store)])
    frozen.release()
    places = second.places_of(columns.values(), columns)
    values = []
    for second.place in places:
        values.append(second.value_state(descriptor).value())
    assert values == [1, 2]
    again = second.freeze()
    [chunk] = again.chunks()
    keys, _ = contents_of(chunk)
    assert isinstance(keys, KeyColumns)
    assert (keys.kinds, keys.is_tuple) == ([pa.string(), pa.int16()], True)
    again.release()
    first.close()
    second.close()


def test_tables_that_are_aborted_leave_nothing_behind(tmp_path):
    backend = HashMapBackend(ALL, 128)
    state = backend.value_state(ValueStateDescriptor("value", Types.LONG()))
    places = backend.places_of(list(range(100_000)))
    for key, backend.place in enumerate(places):
        state.update(key)
    looks = iter(range(10**6))
    store = LocalStore(tmp_path)
    target = FileTarget(store, "sp", 0, format=SavepointFormat.CANONICAL)
    writer = SnapshotWriter(target, lambda: next(looks) > 10)
    with pytest.raises(SnapshotWriteAborted):
        writer.write_keyed(backend.freeze(), ALL, {})
    assert [path for path in store.list() if path.endswith(".parquet")] != []
    writer.discard()
    gc.collect()
    assert list(store.list()) == []


def canonical(frozen, store):
    writer = SnapshotWriter(FileTarget(store, "sp", 0, format=SavepointFormat.CANONICAL))
    handle = writer.write_keyed(frozen, ALL, {})
    writer.close()
    return StoredImage(handle, resolver_in(store, "sp"))
