"""A part of a store as a store of its own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager

from tidegate.storage.blob_store import BlobStore, BlobWriter
from tidegate.storage.locations import below
from tidegate.storage.paths import checked


class Subdirectory(BlobStore):
    """What stands below a path of another store."""

    def __init__(self, store: BlobStore, path: str) -> None:
        self._path = checked(path, store.url)
        self._store = store
        self.url = below(store.url, self._path)

    def read(self, path: str, offset: int = 0, size: int | None = None) -> bytes:
        return self._store.read(self._inner(path), offset, size)

    def writer(self, path: str) -> AbstractContextManager[BlobWriter]:
        return self._store.writer(self._inner(path))

    def put(self, path: str, data: bytes) -> None:
        self._store.put(self._inner(path), data)

    def create_if_absent(self, path: str, data: bytes) -> bool:
        return self._store.create_if_absent(self._inner(path), data)

    def exists(self, path: str) -> bool:
        return self._store.exists(self._inner(path))

    def size(self, path: str) -> int:
        return self._store.size(self._inner(path))

    def list(self, path: str = "") -> Iterator[str]:
        start = len(self._path) + 1
        return (found[start:] for found in self._store.list(self._inner(path)))

    def delete(self, path: str) -> None:
        self._store.delete(self._inner(path))

    def _inner(self, path: str) -> str:
        return f"{self._path}/{checked(path, self.url)}".rstrip("/")
