"""The local directory of a state backend: its database, and the snapshots linked from it."""

from __future__ import annotations

import secrets
import shutil
import tempfile
import threading
from collections.abc import Iterable, Iterator
from functools import cached_property
from pathlib import Path
from typing import Final

from tidegate.core.errors import LocalStateFailed
from tidegate.state.backend import KeyedStateImage, NativeFile
from tidegate.state.keys.key_groups import KeyGroupRange
from tidegate.state.rocksdb.database import Database
from tidegate.state.rocksdb.entries import bounds_of
from tidegate.state.rocksdb.files import DatabaseFacts, Lives, adopt, native_files

DEFAULT_MEMORY: Final = 512 << 20


class SharedDatabase:
    """A database that lives until the backend and all snapshots have released it."""

    def __init__(self, parent: Path | None, memory: int = DEFAULT_MEMORY) -> None:
        """Create a directory for the database.

        Args:
            parent: where; None: among temporary files.
            memory: bytes for the caches of the database.
        """
        try:
            if parent is not None:
                parent.mkdir(parents=True, exist_ok=True)
            # Also removed with the object, if a snapshot is never released.
            self._root = tempfile.TemporaryDirectory(
                prefix="rocksdb-", dir=parent, ignore_cleanup_errors=True
            )
        except OSError as failure:
            raise LocalStateFailed(
                str(parent or tempfile.gettempdir()),
                f"no directory can be created there: {failure.strerror}",
                "set state.backend.rocksdb.localdir to a directory that the slots can write to",
            ) from None
        self.directory = Path(self._root.name)
        self.has_entries = False
        """Whether anything was ever written or restored."""
        self._memory = memory
        self._life = secrets.token_hex(8)
        self._inherited: Lives = {}
        self._users = 1
        self._lock = threading.Lock()
        self._snapshots = 0

    @cached_property
    def database(self) -> Database:
        return Database(self.directory / "db", self._memory)

    def get_many(self, keys: list[bytes]) -> list[bytes | None]:
        return self.database.get_many(keys)

    def write(self, changes: Iterable[tuple[bytes, bytes | None]]) -> None:
        self.database.write(changes)
        self.has_entries = True

    def scan(self, bounds: tuple[bytes, bytes]) -> Iterator[tuple[bytes, bytes]]:
        return self.database.scan(*bounds) if self.has_entries else iter(())

    def take_over(self, image: KeyedStateImage, key_groups: KeyGroupRange) -> DatabaseFacts:
        """Continue with these key groups of an image's files; before the database is used."""
        image.fetch(self.directory / "db")
        self._inherited = adopt(self.directory / "db")
        self.has_entries = True
        facts = DatabaseFacts.read(self.directory / "db")
        first, last = facts.key_groups.start, facts.key_groups.stop
        for start, stop in ((first, key_groups.start), (key_groups.stop, last)):
            if start < stop:
                self.database.delete_all(*bounds_of(KeyGroupRange(start, stop)))
        return facts

    def fetched(self, image: KeyedStateImage) -> Path:
        """The files of an image, in a directory next to the database."""
        directory = self.new_directory()
        image.fetch(directory)
        adopt(directory)
        return directory

    def new_directory(self) -> Path:
        """A new directory name next to the database, on the same file system."""
        self._snapshots += 1
        return self.directory / f"snapshot-{self._snapshots}"

    def link(self, directory: Path, facts: DatabaseFacts) -> None:
        """Link the current database into a new directory."""
        self.database.snapshot(directory)
        try:
            facts.write(directory)
        except OSError as failure:
            raise LocalStateFailed(
                str(directory),
                f"a file cannot be written: {failure.strerror}",
                "free some space there, or set state.backend.rocksdb.localdir to another disk",
            ) from None

    def files(self, directory: Path) -> list[NativeFile]:
        return native_files(directory, self._inherited, self._life)

    def share(self) -> None:
        """Add a user, who will `drop` it."""
        with self._lock:
            self._users += 1

    def drop(self) -> None:
        """Remove a user; the last one closes the database and removes all files."""
        with self._lock:
            self._users -= 1
            is_last = self._users == 0
        if is_last:
            if "database" in self.__dict__:
                self.database.close()
            self._root.cleanup()


def remove(directory: Path) -> None:
    """Remove a directory, if it exists."""
    shutil.rmtree(directory, ignore_errors=True)
