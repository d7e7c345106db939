"""The state of real backends: frozen, stored, and taken over by the same or another backend."""

import pytest

from tidegate.state.descriptors import ValueStateDescriptor
from tidegate.state.keys.key_groups import KeyGroupRange
from tidegate.state.memory.backend import HashMapBackend
from tidegate.state.pointers import FileScope, FileSegment
from tidegate.state.rocksdb.backend import RocksDBBackend
from tidegate.state.snapshot.reader import StoredImage, resolver_in
from tidegate.state.snapshot.writer import FileTarget, SnapshotWriter
from tidegate.storage.local import LocalStore
from tidegate.types.typeinfo import Types

ALL = KeyGroupRange(0, 128)
HALVES = [KeyGroupRange(0, 64), KeyGroupRange(64, 128)]
VALUE = ValueStateDescriptor("value", Types.LONG())
BACKENDS = [HashMapBackend, RocksDBBackend]


def put(backend, values):
    state = backend.value_state(VALUE)
    places = backend.places_of(list(values))
    for value, backend.place in zip(values.values(), places, strict=True):
        state.update(value)


def content(backend):
    state = backend.value_state(VALUE)
    keys = list(backend.keys("value"))
    places = backend.places_of(keys)
    found = {}
    for key, backend.place in zip(keys, places, strict=True):
        found[key] = state.value()
    return found


def stored(backend, store, threshold=0, reusable=None):
    writer = SnapshotWriter(FileTarget(store, "chk-1", threshold))
    frozen = backend.freeze()
    try:
        handle = writer.write_keyed(frozen, ALL, reusable or {})
    finally:
        frozen.release()
    writer.close()
    return handle, writer.bytes_written


@pytest.mark.parametrize("threshold", [0, 1 << 20])
@pytest.mark.parametrize("after", BACKENDS)
@pytest.mark.parametrize("before", BACKENDS)
def test_state_is_taken_over_whole_or_by_key_group(before, after, threshold, tmp_path):
    values = {f"key-{i}": i for i in range(5_000)}
    backend = before(ALL, 128)
    put(backend, values)
    store = LocalStore(tmp_path)
    handle, _ = stored(backend, store, threshold)
    backend.close()
    image = StoredImage(handle, resolver_in(store, "chk-1"))
    found = []
    for key_groups in (ALL, *HALVES):
        restored = after(key_groups, 128)
        restored.restore([image])
        found.append(content(restored))
        restored.close()
    whole, first, second = found
    assert whole == values
    assert first | second == values
    assert not first.keys() & second.keys()


def test_a_checkpoint_of_a_database_writes_what_has_changed_since_the_one_it_builds_on(tmp_path):
    backend = RocksDBBackend(ALL, 128)
    store = LocalStore(tmp_path)
    values = {f"key-{i}": i for i in range(50_000)}
    put(backend, values)
    first, first_size = stored(backend, store)
    reusable = {
        file.name: file.content
        for file in first.native_files
        if isinstance(file.content, FileSegment) and file.content.file.scope is FileScope.SHARED
    }
    changed = {f"key-{i}": -i for i in range(0, 50_000, 100)}
    put(backend, changed)
    second, second_size = stored(backend, store, reusable=reusable)
    backend.close()
    assert second_size < first_size / 10
    restored = RocksDBBackend(ALL, 128)
    restored.restore([StoredImage(second, resolver_in(store, "chk-1"))])
    assert content(restored) == values | changed
    restored.close()
