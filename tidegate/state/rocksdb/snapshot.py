"""Keyed state at one moment, first as frozen values, then as files of a database."""

from __future__ import annotations

import os
import shutil
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from tidegate.core.errors import StateMisuse
from tidegate.state.backend import FrozenState, NativeFile, StateChunk, StateMetadata
from tidegate.state.keys.key_groups import KeyGroupRange
from tidegate.state.rocksdb.files import NATIVE_FORM, DatabaseFacts
from tidegate.state.rocksdb.image import chunks_of_database
from tidegate.state.rocksdb.store import SharedDatabase, remove


class Unwritten(ABC):
    """Live state at one moment that is not in the database yet."""

    @abstractmethod
    def changes(self) -> Iterable[tuple[bytes, bytes | None]]:
        """The entries to write; None deletes. May be read on another thread, once."""

    def thaw(self) -> None:
        """They are written, or never will be: live values may change in place. On any thread."""

    @abstractmethod
    def undo(self) -> None:
        """Writing failed: everything must be written again."""


class FrozenDatabase(FrozenState):
    """The changes since the last snapshot, written by the first thread that needs them.

    That is the thread that stores the files, or the backend before it writes something itself:
    until then, the database does not change.
    """

    native_form = NATIVE_FORM

    def __init__(
        self,
        store: SharedDatabase,
        facts: DatabaseFacts,
        metadata: tuple[StateMetadata, ...],
        unwritten: Unwritten,
    ) -> None:
        self.metadata = metadata
        self.key_groups = facts.key_groups
        self.max_parallelism = facts.max_parallelism
        self._store = store
        self._facts = facts
        self._unwritten = unwritten
        self._directory = store.new_directory()
        self._lock = threading.Lock()
        self._is_settled = False
        self._is_released = False
        self._failure: Exception | None = None
        store.share()

    @property
    def is_settled(self) -> bool:
        return self._is_settled

    def settle(self) -> None:
        """Make sure that everything is written; later calls repeat the failure of the first."""
        with self._lock:
            if not self._is_settled:
                self._settle()
            if self._failure is not None:
                raise self._failure

    def _settle(self) -> None:
        try:
            self._store.write(self._unwritten.changes())
            if not self._is_released:
                self._store.link(self._directory, self._facts)
        except Exception as failure:
            self._failure = failure
        finally:
            self._is_settled = True
            self._unwritten.thaw()

    def native_files(self) -> Sequence[NativeFile]:
        self._read()
        return self._store.files(self._directory)

    def fetch(self, directory: Path) -> None:
        directory.mkdir(parents=True)
        for file in self.native_files():
            can_share = file.is_immutable and file.path.stat().st_dev == directory.stat().st_dev
            (os.link if can_share else shutil.copy)(file.path, directory / file.name)

    def chunks(self, key_groups: KeyGroupRange | None = None) -> Iterator[StateChunk]:
        self._read()
        return chunks_of_database(self._directory, key_groups)

    def _read(self) -> None:
        self.settle()
        if self._is_released:
            raise StateMisuse("this snapshot was released and can no longer be read")

    def release(self) -> None:
        with self._lock:
            if self._is_released:
                return
            self._is_released = True
        remove(self._directory)
        self._store.drop()


class SnapshotSeries:
    """The snapshots of one database, in order, and writes between them."""

    def __init__(self, store: SharedDatabase) -> None:
        self._store = store
        self._last: tuple[FrozenDatabase, Unwritten] | None = None

    @property
    def is_settled(self) -> bool:
        """Whether the database may change without waiting."""
        return self._last is None or self._last[0].is_settled

    def freeze(
        self, facts: DatabaseFacts, metadata: tuple[StateMetadata, ...], unwritten: Unwritten
    ) -> FrozenDatabase:
        """Take a snapshot; the previous one must be settled."""
        frozen = FrozenDatabase(self._store, facts, metadata, unwritten)
        self._last = frozen, unwritten
        return frozen

    def settle(self) -> None:
        """Make sure that the last snapshot is written; failed writes are undone."""
        last, self._last = self._last, None
        if last is None:
            return
        frozen, unwritten = last
        try:
            frozen.settle()
        except Exception:
            # The thread that stores the snapshot reports the failure; only the undo matters here.
            unwritten.undo()

    def write(self, unwritten: Unwritten) -> None:
        """Write immediately, without a snapshot; the last one must be settled."""
        try:
            self._store.write(unwritten.changes())
        except Exception:
            unwritten.undo()
            raise
        finally:
            unwritten.thaw()
