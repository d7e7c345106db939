"""Blobs as files on a local or mounted disk."""

from __future__ import annotations

import errno
import os
import secrets
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tidegate.core.errors import BlobNotFound, StorageError
from tidegate.storage.blob_store import BlobStore, BlobWriter
from tidegate.storage.failures import GuardedWriter, storage_errors
from tidegate.storage.locations import checked

_WRITE_BUFFER = 1 << 20
_TRIES = 5


class LocalStore(BlobStore):
    """A directory. It is created with its parents when the first blob is written."""

    may_act_late = False

    def __init__(self, root: Path) -> None:
        self.url = str(root)
        self._root = root

    def read(self, path: str, offset: int = 0, size: int | None = None) -> bytes:
        with self._at(path) as location, location.open("rb", buffering=0) as file:
            if size is None:
                size = max(0, os.fstat(file.fileno()).st_size - offset)
            parts = []
            while size > 0 and (part := os.pread(file.fileno(), size, offset)):
                parts.append(part)
                offset += len(part)
                size -= len(part)
            return parts[0] if len(parts) == 1 else b"".join(parts)

    @contextmanager
    def writer(self, path: str) -> Iterator[BlobWriter]:
        with self._at(path) as location:
            make_directory(location.parent)
            file = location.open("wb", buffering=_WRITE_BUFFER)
        try:
            yield GuardedWriter(str(location), file)
            with storage_errors(str(location)):
                file.flush()
                os.fsync(file.fileno())
                file.close()
                sync_directory(location.parent)
        except BaseException:
            with suppress(OSError):  # closing flushes the buffer, and may fail again
                file.close()
            location.unlink(missing_ok=True)
            raise

    def put(self, path: str, data: bytes) -> None:
        with self._at(path) as location, _temporary(location, data) as temporary:
            temporary.replace(location)
            sync_directory(location.parent)

    def create_if_absent(self, path: str, data: bytes) -> bool:
        with self._at(path) as location, _temporary(location, data) as temporary:
            try:
                location.hardlink_to(temporary)
            except FileExistsError:
                return False
            except OSError as error:
                if error.errno not in (errno.EPERM, errno.ENOTSUP, errno.EMLINK):
                    raise
                raise StorageError(
                    str(location),
                    f"the file system does not support hard links ({error.strerror})",
                    "choose a directory on a file system that does",
                ) from None
            sync_directory(location.parent)
            return True

    def exists(self, path: str) -> bool:
        with self._at(path) as location:
            return _is_file(location)

    def size(self, path: str) -> int:
        with self._at(path) as location:
            if not _is_file(location):
                raise BlobNotFound(str(location))
            return location.stat().st_size

    def list(self, path: str = "") -> Iterator[str]:
        with self._at(path) as location:
            found = []
            for directory, _, names in os.walk(location, onerror=_raise_unless_missing):
                inner = Path(directory).relative_to(self._root)
                found += [(inner / name).as_posix() for name in names]
        return iter(found)

    def delete(self, path: str) -> None:
        with self._at(path) as location:
            try:
                if location.is_dir() and not location.is_symlink():
                    _remove_tree(location)
                else:
                    location.unlink()
            except FileNotFoundError:
                pass

    @contextmanager
    def _at(self, path: str) -> Iterator[Path]:
        location = self._root / checked(path, self.url)
        with storage_errors(str(location)):
            yield location


def _remove_tree(location: Path) -> None:
    """Works even while another process writes there, which then finds no directory."""
    for tries_left in reversed(range(_TRIES)):
        try:
            shutil.rmtree(location)
            return
        except FileNotFoundError:
            if not location.exists():  # otherwise, another process deleted something below it
                return
        except OSError as error:
            if error.errno != errno.ENOTEMPTY or not tries_left:
                raise


def _is_file(location: Path) -> bool:
    try:
        return stat.S_ISREG(location.stat().st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return False


@contextmanager
def _temporary(location: Path, data: bytes) -> Iterator[Path]:
    """The data, durable, in a hidden file next to its final location."""
    make_directory(location.parent)
    temporary = location.with_name(f".{location.name}.{secrets.token_hex(8)}.tmp")
    try:
        with temporary.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        yield temporary
    finally:
        temporary.unlink(missing_ok=True)


def make_directory(directory: Path) -> None:
    """Create a directory and its parents, all durable."""
    if directory.is_dir():
        return
    make_directory(directory.parent)
    try:
        directory.mkdir(exist_ok=True)
    except FileNotFoundError:
        if not directory.parent.is_dir():  # another process deleted it
            raise
        raise StorageError(
            str(directory),
            f"no directory can be created in {directory.parent}",
            "it is not a file system for ordinary files: choose another directory",
        ) from None
    sync_directory(directory.parent)


def sync_directory(directory: Path) -> None:
    """Make the names in a directory durable."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # unsupported by some file systems
            raise
    finally:
        os.close(descriptor)


def _raise_unless_missing(error: OSError) -> None:
    if not isinstance(error, FileNotFoundError | NotADirectoryError):
        raise error
