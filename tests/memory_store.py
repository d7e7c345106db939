"""Blobs in the memory of this process, for tests and simulations."""

from __future__ import annotations

import io
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from tidegate.core.errors import BlobNotFound
from tidegate.storage.blob_store import BlobStore, BlobWriter
from tidegate.storage.locations import below, checked


class MemoryStore(BlobStore):
    """Keeps blobs in a dictionary. Not simulated: parts of a blob that others see too early."""

    def __init__(self, url: str = "memory://") -> None:
        self.url = url
        self._blobs: dict[str, bytes] = {}
        self._lock = threading.Lock()

    def read(self, path: str, offset: int = 0, size: int | None = None) -> bytes:
        data = self._blob(path)
        return data[offset:] if size is None else data[offset : offset + size]

    @contextmanager
    def writer(self, path: str) -> Iterator[BlobWriter]:
        buffer = io.BytesIO()
        yield buffer
        self.put(path, buffer.getvalue())

    def put(self, path: str, data: bytes) -> None:
        with self._lock:
            self._blobs[checked(path, self.url)] = bytes(data)

    def create_if_absent(self, path: str, data: bytes) -> bool:
        path = checked(path, self.url)
        with self._lock:
            if path in self._blobs:
                return False
            self._blobs[path] = bytes(data)
            return True

    def exists(self, path: str) -> bool:
        with self._lock:
            return checked(path, self.url) in self._blobs

    def size(self, path: str) -> int:
        return len(self._blob(path))

    def list(self, path: str = "") -> Iterator[str]:
        path = checked(path, self.url)
        with self._lock:
            return iter([each for each in self._blobs if _is_below(each, path)])

    def delete(self, path: str) -> None:
        path = checked(path, self.url)
        with self._lock:
            for each in [each for each in self._blobs if each == path or _is_below(each, path)]:
                del self._blobs[each]

    def _blob(self, path: str) -> bytes:
        with self._lock:
            data = self._blobs.get(checked(path, self.url))
        if data is None:
            raise BlobNotFound(below(self.url, path))
        return data


def _is_below(blob: str, path: str) -> bool:
    return path == "" or blob.startswith(f"{path}/")
