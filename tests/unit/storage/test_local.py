import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.blob_store_contract import BlobStoreContract
from tidegate.core.errors import StorageError
from tidegate.storage.filesystem import open_store
from tidegate.storage.local import LocalStore


class TestLocalStore(BlobStoreContract):
    @pytest.fixture
    def store(self, tmp_path):
        return LocalStore(tmp_path / "not" / "yet" / "there")


@pytest.fixture
def limited_files():
    """No file of this process may grow beyond 64 KB: the nearest that needs no special rights."""
    import resource
    import signal

    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)
    signal.signal(signal.SIGXFSZ, handler)


def write_much(store):
    with store.writer("big") as blob:
        for _ in range(100):
            blob.write(bytes(1 << 16))


def test_a_file_that_cannot_grow_is_named_with_the_way_out_and_removed(tmp_path, limited_files):
    store = LocalStore(tmp_path)
    with pytest.raises(StorageError, match="big: File too large; free space there"):
        store.put("big", bytes(1 << 20))
    with pytest.raises(StorageError, match="big: File too large; free space there"):
        write_much(store)
    assert list(store.list()) == []


FILL_A_DISK = """
import subprocess, sys
from pathlib import Path
from tidegate.core.errors import StorageError
from tidegate.storage.local import LocalStore

directory = Path(sys.argv[1])
mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "none", directory])
if mounted.returncode:
    sys.exit(77)
store = LocalStore(directory)
store.put("small", b"kept")
try:
    with store.writer("chk-1/big") as blob:
        for _ in range(64):
            blob.write(bytes(1 << 16))
except StorageError as error:
    print(error)
try:
    store.create_if_absent("chk-2/_metadata", bytes(1 << 20))
except StorageError as error:
    print(error)
print(sorted(store.list()), store.read("small"), store.create_if_absent("chk-3/_metadata", b"x"))
"""


def test_a_full_disk_fails_the_write_and_leaves_what_was_there(tmp_path):
    process = subprocess.run(
        ["unshare", "--mount", sys.executable, "-c", FILL_A_DISK, tmp_path],
        capture_output=True,
        text=True,
        check=False,
    )
    if process.returncode == 77 or "Operation not permitted" in process.stderr:
        pytest.skip("needs the right to mount a small disk")
    full = "No space left on device; free space there, or choose another directory"
    assert process.stdout.splitlines() == [
        f"{tmp_path}/chk-1/big: {full}",
        f"{tmp_path}/chk-2/_metadata: {full}",
        "['small'] b'kept' True",
    ], process.stderr


@pytest.mark.parametrize(
    ("code", "problem"),
    [(errno.EACCES, "Permission denied"), (errno.EROFS, "Read-only file system")],
)
def test_a_directory_that_cannot_be_written_is_named_with_the_way_out(code, problem):
    from tidegate.storage.failures import storage_errors

    with (
        pytest.raises(StorageError, match=f"/data/chk: {problem}; let the user who runs"),
        storage_errors("/data/chk"),
    ):
        raise OSError(code, os.strerror(code))


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs a file system without writes")
def test_a_place_where_nothing_can_be_created_is_named():
    store = open_store("/proc/tidegate")
    with pytest.raises(StorageError, match="no directory can be created in /proc; "):
        store.create_if_absent("chk-1/_metadata", b"x")


def test_a_file_in_the_place_of_the_directory_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="there is a file in place of a directory"):
        LocalStore(tmp_path / "file").put("chk-1/_metadata", b"x")
    with pytest.raises(StorageError, match="choose another directory"):
        LocalStore(tmp_path / "file").put("_metadata", b"x")


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="it needs the names of open files")
@pytest.mark.parametrize("operation", ["put", "create_if_absent"])
def test_a_blob_is_on_the_disk_before_it_has_its_name_and_its_name_when_it_is_stored(
    tmp_path, monkeypatch, operation
):
    done = []

    def noted(original, what):
        def call(path, *args):
            done.append(what)
            return original(path, *args)

        return call

    def fsync(descriptor):
        synced = Path(f"/proc/self/fd/{descriptor}").readlink()
        done.append(synced if synced.is_dir() else "written")

    monkeypatch.setattr(Path, "replace", noted(Path.replace, "named"))
    monkeypatch.setattr(Path, "hardlink_to", noted(Path.hardlink_to, "named"))
    monkeypatch.setattr(os, "fsync", fsync)
    getattr(LocalStore(tmp_path / "job"), operation)("chk-1/file", b"state")
    directories = [tmp_path, tmp_path / "job"]
    assert done == [*directories, "written", "named", tmp_path / "job" / "chk-1"]
