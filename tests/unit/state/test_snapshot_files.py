"""Frozen state → files → state again."""

from pathlib import Path

import pytest

from tests.memory_store import MemoryStore
from tidegate.core.errors import (
    CorruptCheckpoint,
    SnapshotWriteAborted,
    StateTooLarge,
    StorageError,
)
from tidegate.state.backend import FrozenState, NativeFile, StateChunk, StateMetadata
from tidegate.state.keys.key_groups import KeyGroupRange
from tidegate.state.pointers import FileScope, FileSegment, InlineBytes
from tidegate.state.snapshot.reader import StoredImage, read_segment, resolver_in
from tidegate.state.snapshot.writer import FileTarget, MemoryTarget, SnapshotWriter

ALL = KeyGroupRange(0, 128)


class Frozen(FrozenState):
    """State that is given as chunks or as files."""

    metadata = (StateMetadata("count", "value state of LONG"),)
    max_parallelism = 128
    key_groups = ALL

    def __init__(self, chunks=(), files=None, native_form=None):
        self._chunks = chunks
        self._files = files or {}
        self.native_form = native_form

    def chunks(self, key_groups=None):
        return iter(self._chunks)

    def native_files(self):
        return [NativeFile(path.name, path, path.suffix == ".sst") for path in self._files]

    def release(self):
        pass


class CountingStore(MemoryStore):
    """Remembers how it was read."""

    def __init__(self):
        super().__init__()
        self.reads = []

    def read(self, path, offset=0, size=None):
        self.reads.append((offset, size))
        return super().read(path, offset, size)


def chunk(group, payload):
    return StateChunk("count", ((group, 1), (group + 1, 2)), payload)


CHUNKS = [chunk(group, bytes([group]) * 1000) for group in range(0, 128, 2)]


@pytest.fixture
def store():
    return CountingStore()


def writer_to(store, threshold=0, **more):
    return SnapshotWriter(FileTarget(store, "chk-7", threshold), **more)


def write_keyed(store, frozen, threshold=0, reusable=None):
    writer = writer_to(store, threshold)
    handle = writer.write_keyed(frozen, ALL, reusable or {})
    writer.close()
    return handle, writer


def image_of(handle, store):
    return StoredImage(handle, resolver_in(store, "chk-7"))


def test_chunks_go_into_one_file_beside_the_metadata_and_come_back(store):
    handle, writer = write_keyed(store, Frozen(CHUNKS))
    (path,) = store.list()
    assert path.startswith("chk-7/")
    assert writer.bytes_written == store.size(path) == 64_000
    image = image_of(handle, store)
    assert list(image.chunks()) == CHUNKS
    assert (image.metadata, image.max_parallelism, image.key_groups, image.native_form) == (
        Frozen.metadata,
        128,
        ALL,
        None,
    )


def test_all_states_of_a_subtask_share_a_file(store):
    writer = writer_to(store)
    first = writer.write(b"operator state")
    keyed = writer.write_keyed(Frozen(CHUNKS), ALL, {})
    last = writer.write(b"more")
    writer.close()
    assert len(list(store.list())) == 1
    resolve = resolver_in(store, "chk-7")
    assert read_segment(first, resolve) == b"operator state"
    assert read_segment(last, resolve) == b"more"
    assert list(StoredImage(keyed, resolve).chunks()) == CHUNKS


def test_adjacent_chunks_are_read_at_once(store):
    handle, _ = write_keyed(store, Frozen(CHUNKS))
    assert list(image_of(handle, store).chunks()) == CHUNKS
    assert store.reads == [(0, 64_000)]


def test_only_chunks_of_wanted_key_groups_are_read(store):
    handle, _ = write_keyed(store, Frozen(CHUNKS))
    image = image_of(handle, store)
    assert list(image.chunks(KeyGroupRange(9, 13))) == CHUNKS[4:7]
    assert store.reads == [(4_000, 3_000)]
    assert list(image.chunks(KeyGroupRange(5, 5))) == []


def test_small_state_travels_with_its_pointers_and_writes_no_file(store):
    writer = writer_to(store, threshold=64_004)
    keyed = writer.write_keyed(Frozen(CHUNKS), ALL, {})
    operator = writer.write(b"1234")
    writer.close()
    assert list(store.list()) == []
    assert operator == InlineBytes(b"1234")
    assert writer.bytes_written == 64_004
    assert list(image_of(keyed, store).chunks()) == CHUNKS


def test_state_beyond_the_threshold_goes_into_a_file_as_a_whole(store):
    handle, _ = write_keyed(store, Frozen(CHUNKS), threshold=63_999)
    assert all(isinstance(segment, FileSegment) for segment in handle.segments)


def test_the_threshold_is_one_for_all_states_of_a_subtask(store):
    writer = writer_to(store, threshold=10)
    segments = [writer.write(b"123456") for _ in range(3)]
    writer.close()
    assert [type(segment) for segment in segments] == [InlineBytes, FileSegment, FileSegment]


def test_state_in_memory_travels_with_its_pointers():
    writer = SnapshotWriter(MemoryTarget(100_000))
    handle = writer.write_keyed(Frozen(CHUNKS), ALL, {})
    writer.close()
    assert list(StoredImage(handle, resolver_in(MemoryStore(), "chk-7")).chunks()) == CHUNKS


@pytest.mark.parametrize(
    "write",
    [
        lambda writer: writer.write(bytes(50_001)),
        lambda writer: [writer.write(bytes(10_000)) for _ in range(6)],
        lambda writer: writer.write_keyed(Frozen(CHUNKS), ALL, {}),
    ],
)
def test_too_much_state_for_memory_is_an_error_with_the_ways_out(write):
    writer = SnapshotWriter(MemoryTarget(50_000))
    with pytest.raises(StateTooLarge) as caught:
        write(writer)
    assert "execution.checkpointing.dir" in str(caught.value)
    assert "tidegate.checkpoint.max-state-in-memory" in str(caught.value)
    assert "50000" in str(caught.value)


@pytest.fixture
def database(tmp_path):
    def write(**files: bytes) -> list[Path]:
        directory = tmp_path / "database"
        directory.mkdir(exist_ok=True)
        paths = []
        for name, content in files.items():
            path = directory / name.replace("_", ".")
            path.write_bytes(content)
            paths.append(path)
        return paths

    return write


def native(paths):
    return Frozen(files=paths, native_form="rocksdb")


def fetched(handle, store, directory):
    image_of(handle, store).fetch(directory)
    return {path.name: path.read_bytes() for path in directory.iterdir()}


def test_files_of_a_database_come_back_under_their_names(store, database, tmp_path):
    paths = database(a_sst=b"a" * 5_000_000, b_sst=b"b" * 100, CURRENT=b"MANIFEST-1")
    handle, writer = write_keyed(store, native(paths))
    assert writer.bytes_written == 5_000_110
    assert fetched(handle, store, tmp_path / "copy") == {
        "a.sst": b"a" * 5_000_000,
        "b.sst": b"b" * 100,
        "CURRENT": b"MANIFEST-1",
    }


def test_immutable_files_are_shared_and_others_belong_to_the_checkpoint(store, database):
    handle, _ = write_keyed(store, native(database(a_sst=b"a", CURRENT=b"c", LOG=b"l")))
    scopes = {file.name: file.content.file.scope for file in handle.native_files}
    assert scopes == {
        "a.sst": FileScope.SHARED,
        "CURRENT": FileScope.EXCLUSIVE,
        "LOG": FileScope.EXCLUSIVE,
    }
    assert sorted(path.partition("/")[0] for path in store.list()) == ["chk-7", "shared"]


def test_what_an_earlier_checkpoint_has_is_not_written_again(store, database, tmp_path):
    first, _ = write_keyed(store, native(database(a_sst=b"a" * 1000, CURRENT=b"1")))
    before = set(store.list())
    reusable = {file.name: file.content for file in first.native_files}
    paths = database(a_sst=b"a" * 1000, b_sst=b"b" * 10, CURRENT=b"2")
    second, writer = write_keyed(store, native(paths), reusable=reusable)
    assert writer.bytes_written == 11
    assert len(set(store.list()) - before) == 2
    assert fetched(second, store, tmp_path / "copy")["a.sst"] == b"a" * 1000
    assert fetched(second, store, tmp_path / "again")["CURRENT"] == b"2"


def test_the_same_name_in_two_subtasks_is_two_shared_files(store, database):
    write_keyed(store, native(database(a_sst=b"one")))
    write_keyed(store, native(database(a_sst=b"two")))
    assert len(list(store.list("shared"))) == 2


def test_a_small_database_travels_with_its_pointers(store, database, tmp_path):
    paths = database(a_sst=b"a" * 100, CURRENT=b"1")
    handle, _ = write_keyed(store, native(paths), threshold=101)
    assert list(store.list()) == []
    assert fetched(handle, store, tmp_path / "copy") == {"a.sst": b"a" * 100, "CURRENT": b"1"}


def test_a_database_is_kept_in_memory_as_a_whole(database):
    writer = SnapshotWriter(MemoryTarget(100))
    with pytest.raises(StateTooLarge):
        writer.write_keyed(native(database(a_sst=b"a" * 101)), ALL, {})


def test_writing_stops_when_the_checkpoint_is_aborted(store):
    seen = []

    def chunks():
        for each in CHUNKS:
            seen.append(each)
            yield each

    writer = writer_to(store, is_canceled=lambda: len(seen) == 5)
    with pytest.raises(SnapshotWriteAborted):
        writer.write_keyed(Frozen(chunks()), ALL, {})
    assert len(seen) == 5
    writer.discard()
    assert list(store.list()) == []


def test_a_checkpoint_that_was_aborted_is_not_closed(store):
    writer = writer_to(store, is_canceled=lambda: bool(writer.bytes_written))
    writer.write(b"state")
    with pytest.raises(SnapshotWriteAborted):
        writer.close()


def test_discarding_removes_what_was_written_and_nothing_that_was_reused(store, database):
    first, _ = write_keyed(store, native(database(a_sst=b"a")))
    before = set(store.list())
    writer = writer_to(store)
    reusable = {file.name: file.content for file in first.native_files}
    writer.write_keyed(native(database(a_sst=b"a", b_sst=b"b", CURRENT=b"1")), ALL, reusable)
    writer.close()
    assert set(store.list()) > before
    writer.discard()
    assert set(store.list()) == before


class FailingStore(MemoryStore):
    """Its writers fail after some bytes."""

    def writer(self, path):
        raise StorageError(path, "the disk is on fire", "call the fire brigade")


def test_a_storage_that_fails_can_be_discarded():
    writer = writer_to(FailingStore())
    with pytest.raises(StorageError, match="on fire"):
        writer.write(b"state")
    writer.discard()


def test_a_missing_file_is_a_corrupt_checkpoint(store):
    handle, _ = write_keyed(store, Frozen(CHUNKS))
    (path,) = store.list()
    store.delete(path)
    with pytest.raises(CorruptCheckpoint, match=f"{path} is corrupt: expected a file, found none"):
        list(image_of(handle, store).chunks())


def test_a_file_that_is_cut_off_is_named(store):
    handle, _ = write_keyed(store, Frozen(CHUNKS))
    (path,) = store.list()
    store.put(path, store.read(path)[:-1])
    with pytest.raises(CorruptCheckpoint, match="at least 64000 bytes, found an end after 63999"):
        list(image_of(handle, store).chunks())


def test_a_changed_byte_is_named_with_its_file_and_the_way_out(store):
    handle, _ = write_keyed(store, Frozen(CHUNKS))
    (path,) = store.list()
    data = bytearray(store.read(path))
    data[4_321] ^= 1
    store.put(path, bytes(data))
    with pytest.raises(CorruptCheckpoint) as caught:
        list(image_of(handle, store).chunks())
    assert path in str(caught.value)
    assert "at byte 4000" in str(caught.value)
    assert "or an older checkpoint or savepoint of the job" in str(caught.value)
    assert list(image_of(handle, store).chunks(KeyGroupRange(20, 30))) == CHUNKS[10:15]
