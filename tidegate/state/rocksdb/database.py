"""A RocksDB database on local disk, from bytes to bytes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any, Final

from rocksdict import (
    AccessType,
    BlockBasedOptions,
    Cache,
    Checkpoint,
    DBCompactionStyle,
    DBCompressionType,
    Options,
    Rdict,
    UniversalCompactOptions,
    WriteBatch,
    WriteOptions,
)

from tidegate.core.errors import LocalStateFailed

_WRITTEN_AT_ONCE: Final = 2_000
"""Writing holds the interpreter lock: about a millisecond for this many entries."""
_READ_AT_ONCE: Final = 1_000
_SORTED_RUNS: Final = 8
"""Beyond this number they are merged: each slows down reads, each merge enlarges checkpoints."""
_OUTGROWN_PERCENT: Final = 100
"""Everything is rewritten when the changes since then are as large as what was written then."""
_BLOOM_BITS: Final = 10
_BLOCK_BYTES: Final = 8 << 10


class Database:
    """Entries in the order of their keys. Thread-safe.

    There is no write-ahead log: only what `snapshot` links survives. Small changes stay in separate
    files for long, so that a snapshot shares most of its files with the previous one.
    """

    def __init__(self, directory: Path, memory: int) -> None:
        """Open or create a database.

        Args:
            directory: its own directory; created if it does not exist.
            memory: bytes for unwritten entries and for the read cache.
        """
        self._directory = directory
        self._writing = WriteOptions()
        # A property, although its stub says that it is a method.
        setattr(self._writing, "disable_wal", True)  # noqa: B010
        with self._failures():
            directory.mkdir(parents=True, exist_ok=True)
            self._rdict = Rdict(str(directory), _options(memory))

    @classmethod
    def read_only(cls, directory: Path, memory: int = 8 << 20) -> Database:
        database = cls.__new__(cls)
        database._directory = directory
        with database._failures():
            access = AccessType.read_only(error_if_log_file_exist=False)
            database._rdict = Rdict(str(directory), _options(memory), access_type=access)
        return database

    def get_many(self, keys: list[bytes]) -> list[bytes | None]:
        asked: Any = keys
        with self._failures():
            found: Any = self._rdict[asked]
        return list(found)

    def write(self, changes: Iterable[tuple[bytes, bytes | None]]) -> None:
        """Put entries; None deletes."""
        pending = iter(changes)
        while piece := list(islice(pending, _WRITTEN_AT_ONCE)):
            batch = WriteBatch(raw_mode=True)
            for key, value in piece:
                if value is None:
                    del batch[key]
                else:
                    batch[key] = value
            with self._failures():
                self._rdict.write(batch, self._writing)

    def delete_all(self, start: bytes, stop: bytes) -> None:
        """Delete the entries from a key up to, not including, another."""
        with self._failures():
            self._rdict.delete_range(start, stop, self._writing)

    def scan(self, start: bytes, stop: bytes) -> Iterator[tuple[bytes, bytes]]:
        """The entries from a key up to, not including, another."""
        with self._failures():
            entries = self._rdict.items(from_key=start)
        while True:
            with self._failures():
                piece: list[Any] = list(islice(entries, _READ_AT_ONCE))
            if not piece:
                return
            for entry in piece:
                if entry[0] >= stop:
                    return
                yield entry

    def snapshot(self, directory: Path) -> None:
        """Link the current files of the database into a directory that does not exist yet."""
        with self._failures():
            # The checkpoint would flush, too, but without letting other threads run: on a slow
            # disk, the slot would miss heartbeats.
            self._rdict.flush()
            Checkpoint(self._rdict).create_checkpoint(str(directory))

    def close(self) -> None:
        self._rdict.close()

    @contextmanager
    def _failures(self) -> Iterator[None]:
        try:
            yield
        except LocalStateFailed:
            raise
        # rocksdict raises a plain Exception for all errors of the database.
        except Exception as failure:
            raise LocalStateFailed(str(self._directory), str(failure), _advice(failure)) from None


def _advice(failure: Exception) -> str:
    if "No space left" in str(failure):
        return "free some space there, or set state.backend.rocksdb.localdir to a larger disk"
    return (
        "make sure that the directory can be written and read, or set "
        "state.backend.rocksdb.localdir to another"
    )


def _options(memory: int) -> Options:
    options = Options(raw_mode=True)
    options.create_if_missing(True)
    options.set_write_buffer_size(memory // 4)
    options.set_max_write_buffer_number(2)
    options.set_max_background_jobs(2)
    options.set_keep_log_file_num(1)
    options.set_stats_dump_period_sec(0)
    options.set_stats_persist_period_sec(0)
    options.set_compression_type(DBCompressionType.lz4())
    options.set_block_based_table_factory(_blocks(memory // 2))
    options.set_compaction_style(DBCompactionStyle.universal())
    options.set_universal_compaction_options(_merging())
    options.set_level_zero_file_num_compaction_trigger(_SORTED_RUNS)
    options.set_level_zero_slowdown_writes_trigger(4 * _SORTED_RUNS)
    options.set_level_zero_stop_writes_trigger(8 * _SORTED_RUNS)
    return options


def _merging() -> UniversalCompactOptions:
    merging = UniversalCompactOptions()
    merging.max_size_amplification_percent = _OUTGROWN_PERCENT
    return merging


def _blocks(cache: int) -> BlockBasedOptions:
    blocks = BlockBasedOptions()
    blocks.set_bloom_filter(_BLOOM_BITS, False)
    blocks.set_block_size(_BLOCK_BYTES)
    blocks.set_block_cache(Cache(cache))
    blocks.set_cache_index_and_filter_blocks(True)
    blocks.set_pin_l0_filter_and_index_blocks_in_cache(True)
    return blocks
