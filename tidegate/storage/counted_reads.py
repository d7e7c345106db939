"""A store that tells how much is read from it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

from tidegate.storage.blob_store import BlobStore, BlobWriter


class CountedReads(BlobStore):
    """Another store; `count` is called by whoever reads, with the number of bytes."""

    def __init__(self, store: BlobStore, count: Callable[[int], None]) -> None:
        self.url = store.url
        self._store = store
        self._count = count

    def read(self, path: str, offset: int = 0, size: int | None = None) -> bytes:
        data = self._store.read(path, offset, size)
        self._count(len(data))
        return data

    def writer(self, path: str) -> AbstractContextManager[BlobWriter]:
        return self._store.writer(path)

    def put(self, path: str, data: bytes) -> None:
        self._store.put(path, data)

    def create_if_absent(self, path: str, data: bytes) -> bool:
        return self._store.create_if_absent(path, data)

    def exists(self, path: str) -> bool:
        return self._store.exists(path)

    def size(self, path: str) -> int:
        return self._store.size(path)

    def list(self, path: str = "") -> Iterator[str]:
        return self._store.list(path)

    def delete(self, path: str) -> None:
        self._store.delete(path)
