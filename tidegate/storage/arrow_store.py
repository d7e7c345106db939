"""Blobs in any file system that Arrow supports: S3, Google, Azure, and those of fsspec."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Protocol

from pyarrow import fs

from tidegate.core.errors import BlobNotFound
from tidegate.storage.blob_store import BlobStore, BlobWriter
from tidegate.storage.failures import GuardedWriter, storage_errors
from tidegate.storage.locations import below, checked, resolve, shown


class AtomicCreation(Protocol):
    """What Arrow's file systems lack: creating a file atomically if it does not exist."""

    def __call__(self, path: str, data: bytes) -> bool:
        """Create the file at a path; returns False and changes nothing if it exists."""


class ArrowStore(BlobStore):
    """A directory of a file system, or a prefix in a bucket."""

    def __init__(self, url: str, create: AtomicCreation, *, is_object_store: bool) -> None:
        self.url = url
        self._file_system, root = resolve(url)
        self._root = root.rstrip("/")
        self._create = create
        self._is_object_store = is_object_store
        """Object stores have no directories, and a file appears only when it is complete."""

    def read(self, path: str, offset: int = 0, size: int | None = None) -> bytes:
        with self._at(path) as location, self._file_system.open_input_file(location) as file:
            rest = file.size() - offset
            if rest <= 0:
                return b""
            file.seek(offset)
            return file.read(rest if size is None else min(size, rest))

    @contextmanager
    def writer(self, path: str) -> Iterator[BlobWriter]:
        with self._at(path) as location:
            if not self._is_object_store:
                self._file_system.create_dir(location.rpartition("/")[0], recursive=True)
            file = self._file_system.open_output_stream(location, compression=None)
        try:
            yield GuardedWriter(self._shown(path), file)
            with self._at(path):
                file.close()
        except BaseException:
            with suppress(OSError):
                file.close()
            with suppress(OSError):
                self._file_system.delete_file(location)
            raise

    def put(self, path: str, data: bytes) -> None:
        if self._is_object_store:
            with self.writer(path) as blob:
                blob.write(data)
            return
        temporary = f"{path}.{secrets.token_hex(8)}.tmp"
        with self.writer(temporary) as blob:
            blob.write(data)
        with self._at(path) as location, self._at(temporary) as source:
            self._file_system.move(source, location)

    def create_if_absent(self, path: str, data: bytes) -> bool:
        with self._at(path) as location:
            return self._create(location, data)

    def exists(self, path: str) -> bool:
        with self._at(path) as location:
            return bool(self._file_system.get_file_info(location).is_file)

    def size(self, path: str) -> int:
        with self._at(path) as location:
            found = self._file_system.get_file_info(location)
        if not found.is_file:
            raise BlobNotFound(self._shown(path))
        return int(found.size)

    def list(self, path: str = "") -> Iterator[str]:
        with self._at(path) as location:
            selector = fs.FileSelector(location, recursive=True, allow_not_found=True)
            found = self._file_system.get_file_info(selector)
        start = len(self._root) + 1
        return iter([each.path[start:] for each in found if each.is_file])

    def delete(self, path: str) -> None:
        with self._at(path) as location:
            found = self._file_system.get_file_info(location)
            with suppress(FileNotFoundError):
                if found.is_file:
                    self._file_system.delete_file(location)
                elif found.type is fs.FileType.Directory:
                    self._file_system.delete_dir(location)

    @contextmanager
    def _at(self, path: str) -> Iterator[str]:
        location = f"{self._root}/{checked(path, self.url)}".rstrip("/")
        with storage_errors(self._shown(path)):
            yield location

    def _shown(self, path: str) -> str:
        return shown(below(self.url, path)).partition("?")[0]
