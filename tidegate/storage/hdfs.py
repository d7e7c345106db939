"""Blobs in HDFS, with a client that needs neither Java nor libhdfs."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final
from urllib.parse import parse_qsl, unquote, urlsplit

from tidegate.core.errors import BlobNotFound, StorageError
from tidegate.storage.blob_store import BlobStore, BlobWriter
from tidegate.storage.failures import GuardedWriter, storage_error, storage_errors
from tidegate.storage.locations import below, checked, shown

_PATIENCE: Final = {"dfs.client.failover.max.attempts": "5"}
"""By default, the client makes a checkpoint wait for minutes if nobody answers."""


class HdfsStore(BlobStore):
    """A directory of HDFS.

    Hadoop's settings come from HADOOP_CONF_DIR or HADOOP_HOME, and from the URL after the "?".
    Arrow's client is unsuitable: to move a file onto another, it deletes that one first.
    """

    def __init__(self, url: str) -> None:
        try:
            from hdfs_native import Client, WriteOptions
        except ImportError:
            raise StorageError(
                shown(url), "there is no client for HDFS", "pip install 'tidegate[hdfs]'"
            ) from None
        parts = urlsplit(url)
        self.url = url
        self._root = unquote(parts.path).rstrip("/")
        self._overwriting = WriteOptions(overwrite=True)
        with storage_errors(shown(url)):
            self._client = Client(
                f"{parts.scheme}://{parts.netloc}", _PATIENCE | dict(parse_qsl(parts.query))
            )

    def read(self, path: str, offset: int = 0, size: int | None = None) -> bytes:
        with self._at(path) as location, self._client.read(location) as file:
            rest = int(file.size) - offset
            if rest <= 0:
                return b""
            data: bytes = file.read_range(offset, rest if size is None else min(size, rest))
            return data

    @contextmanager
    def writer(self, path: str) -> Iterator[BlobWriter]:
        with self._at(path) as location:
            file = self._client.create(location, self._overwriting)
        try:
            yield GuardedWriter(self._shown(path), file)
            with self._at(path):
                file.close()
        except BaseException:
            with suppress(OSError, RuntimeError):
                file.close()
            with suppress(OSError, RuntimeError):
                self._client.delete(location, False)
            raise

    def put(self, path: str, data: bytes) -> None:
        with self._temporary(path, data) as temporary, self._at(path) as location:
            self._client.rename(temporary, location, True)

    def create_if_absent(self, path: str, data: bytes) -> bool:
        with self._temporary(path, data) as temporary, self._at(path) as location:
            try:
                self._client.rename(temporary, location, False)
            except FileExistsError:
                return False
            return True

    def exists(self, path: str) -> bool:
        with self._at(path) as location:
            try:
                return not self._client.get_file_info(location).isdir
            except (FileNotFoundError, RuntimeError) as error:
                if not _means_nothing_there(error):
                    raise
                return False

    def size(self, path: str) -> int:
        with self._at(path) as location:
            found = self._client.get_file_info(location)
        if found.isdir:
            raise BlobNotFound(self._shown(path))
        return int(found.length)

    def list(self, path: str = "") -> Iterator[str]:
        start = len(self._root) + 1
        with self._at(path) as location:
            try:
                found = [
                    status.path[start:]
                    for status in self._client.list_status(location, True)
                    if not status.isdir and status.path != location
                ]
            except (FileNotFoundError, RuntimeError) as error:
                if not _means_nothing_there(error):
                    raise
                found = []
        return iter(found)

    def delete(self, path: str) -> None:
        with self._at(path) as location:
            self._client.delete(location, True)

    @contextmanager
    def _temporary(self, path: str, data: bytes) -> Iterator[str]:
        """The data in a hidden file next to its final location."""
        directory, slash, name = checked(path, self.url).rpartition("/")
        temporary = f"{directory}{slash}.{name}.{secrets.token_hex(8)}.tmp"
        with self.writer(temporary) as blob:
            blob.write(data)
        with self._at(temporary) as location:
            try:
                yield location
            finally:
                self._client.delete(location, False)

    @contextmanager
    def _at(self, path: str) -> Iterator[str]:
        location = f"{self._root}/{checked(path, self.url)}".rstrip("/")
        try:
            with storage_errors(self._shown(path)):
                yield location
        except RuntimeError as error:  # refusals of the name node, in Java's words
            raise storage_error(self._shown(path), error) from error

    def _shown(self, path: str) -> str:
        return shown(below(self.url, path)).partition("?")[0]


def _means_nothing_there(error: Exception) -> bool:
    """Whether a path does not exist, or one of its parents is a file."""
    return isinstance(error, FileNotFoundError) or "is not a directory" in str(error)
