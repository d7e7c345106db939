"""Storage of checkpoints: a tree of blobs under relative paths."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Protocol


class BlobWriter(Protocol):
    """Takes the bytes of one blob, in order."""

    def write(self, data: bytes) -> object: ...


class BlobStore(ABC):
    """A directory of a file system or a bucket. Paths are relative and separated by `/`.

    Safe for concurrent use by threads and processes. Storage failures raise StorageError with the
    location.
    """

    url: str
    """Its location, for messages and for `open_store` in another process."""
    may_act_late: bool = True
    """Whether an operation that has failed may still take effect: its request may be on its way."""

    @abstractmethod
    def read(self, path: str, offset: int = 0, size: int | None = None) -> bytes:
        """The bytes of a blob, or a part of them.

        Raises:
            BlobNotFound: it does not exist.
        """

    @abstractmethod
    def writer(self, path: str) -> AbstractContextManager[BlobWriter]:
        """Write a blob piece by piece.

        It is durable when the context exits without an error; until then, others may see a part of
        it. After an error it is removed if possible.
        """

    @abstractmethod
    def put(self, path: str, data: bytes) -> None:
        """Replace a blob atomically: others see the old or the new one."""

    @abstractmethod
    def create_if_absent(self, path: str, data: bytes) -> bool:
        """Create a blob atomically and durably; returns False and changes nothing if it exists."""

    @abstractmethod
    def exists(self, path: str) -> bool: ...

    @abstractmethod
    def size(self, path: str) -> int:
        """The size of a blob in bytes.

        Raises:
            BlobNotFound: it does not exist.
        """

    @abstractmethod
    def list(self, path: str = "") -> Iterator[str]:
        """The paths of all blobs below a path, in any order; none if there is nothing.

        Every blob that was there before the call, and is not deleted during it, is listed.
        """

    @abstractmethod
    def delete(self, path: str) -> None:
        """Remove a blob, or everything below a path, if it exists."""
