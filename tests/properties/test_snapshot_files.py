"""Every damage to the files of a snapshot is noticed; otherwise they contain what was written."""

import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.effort import examples
from tests.memory_store import MemoryStore
from tidegate.core.errors import CorruptCheckpoint
from tidegate.state.backend import FrozenState, NativeFile, StateChunk, StateMetadata
from tidegate.state.keys.key_groups import KeyGroupRange
from tidegate.state.snapshot.reader import StoredImage, read_segment, resolver_in
from tidegate.state.snapshot.writer import FileTarget, SnapshotWriter

ALL = KeyGroupRange(0, 128)
FEW = examples(25)
CHUNKS = st.lists(
    st.builds(
        StateChunk,
        st.sampled_from(["count", "last"]),
        st.dictionaries(st.integers(0, 127), st.integers(1, 9), min_size=1, max_size=3).map(
            lambda groups: tuple(sorted(groups.items()))
        ),
        st.binary(min_size=1, max_size=200),
    ),
    max_size=8,
)
FILES = st.dictionaries(
    st.sampled_from(["1.sst", "2.sst", "CURRENT", "MANIFEST-1"]), st.binary(min_size=1, max_size=99)
)
RANGES = st.tuples(st.integers(0, 128), st.integers(0, 128)).map(
    lambda ends: KeyGroupRange(min(ends), max(ends))
)


class Frozen(FrozenState):
    metadata = (StateMetadata("count", "a count"), StateMetadata("last", "the last"))
    max_parallelism = 128
    key_groups = ALL

    def __init__(self, chunks=(), files=None):
        self._chunks = chunks
        self._files = files
        self.native_form = None if files is None else "rocksdb"

    def chunks(self, key_groups=None):
        return iter(self._chunks)

    def native_files(self):
        return self._files

    def release(self):
        pass


class Written:
    """A snapshot with chunks, with the files of a database, and with bytes."""

    def __init__(self, chunks, files, payload, threshold):
        self.store = MemoryStore()
        writer = SnapshotWriter(FileTarget(self.store, "chk-1", threshold))
        with tempfile.TemporaryDirectory() as directory:
            native = []
            for name, content in files.items():
                path = Path(directory, name)
                path.write_bytes(content)
                native.append(NativeFile(name, path, name.endswith(".sst")))
            self.operator = writer.write(payload)
            self.chunks = writer.write_keyed(Frozen(chunks), ALL, {})
            self.files = writer.write_keyed(Frozen(files=native), ALL, {})
        writer.close()

    def paths(self):
        """In an order independent of their names, which are random."""
        paths = self.store.list()
        return sorted(paths, key=lambda path: (path.partition("/")[0], self.store.read(path)))

    def read(self):
        resolve = resolver_in(self.store, "chk-1")
        with tempfile.TemporaryDirectory() as directory:
            copy = Path(directory, "copy")
            StoredImage(self.files, resolve).fetch(copy)
            files = {path.name: path.read_bytes() for path in copy.iterdir()}
        payload = read_segment(self.operator, resolve)
        return list(StoredImage(self.chunks, resolve).chunks()), files, payload


SNAPSHOTS = st.tuples(CHUNKS, FILES, st.binary(min_size=1, max_size=50))


@FEW
@given(SNAPSHOTS, st.integers(0, 1000))
def test_what_is_written_is_read_whatever_is_inline(snapshot, threshold):
    assert Written(*snapshot, threshold).read() == snapshot


@FEW
@given(CHUNKS, RANGES)
def test_the_chunks_of_some_key_groups_are_those_that_hold_them(chunks, key_groups):
    written = Written(chunks, {}, b"x", 0)
    image = StoredImage(written.chunks, resolver_in(written.store, "chk-1"))
    expected = [c for c in chunks if any(group in key_groups for group, _ in c.groups)]
    assert list(image.chunks(key_groups)) == expected


@FEW
@given(SNAPSHOTS, st.data())
def test_a_changed_byte_is_found_in_every_file_and_place(snapshot, data):
    written = Written(*snapshot, 0)
    path = data.draw(st.sampled_from(written.paths()))
    content = bytearray(written.store.read(path))
    content[data.draw(st.integers(0, len(content) - 1))] ^= data.draw(st.integers(1, 255))
    written.store.put(path, bytes(content))
    with pytest.raises(CorruptCheckpoint, match=path):
        written.read()


@FEW
@given(SNAPSHOTS, st.data())
def test_a_cut_is_found_in_every_file_and_place(snapshot, data):
    written = Written(*snapshot, 0)
    path = data.draw(st.sampled_from(written.paths()))
    content = written.store.read(path)
    written.store.put(path, content[: data.draw(st.integers(0, len(content) - 1))])
    with pytest.raises(CorruptCheckpoint, match=path):
        written.read()


@FEW
@given(SNAPSHOTS, st.data())
def test_a_missing_file_is_found(snapshot, data):
    written = Written(*snapshot, 0)
    path = data.draw(st.sampled_from(written.paths()))
    written.store.delete(path)
    with pytest.raises(CorruptCheckpoint, match=path):
        written.read()
