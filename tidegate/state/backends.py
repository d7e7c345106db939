"""Creates the keyed state backend that a job's settings select."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from tidegate.core.clock import Clock
from tidegate.core.modes import StateBackendType
from tidegate.state.columnar.backend import ColumnarState, StateColumn
from tidegate.state.keys.key_groups import KeyGroupRange
from tidegate.state.keys.key_index import KeyIndex
from tidegate.state.memory.backend import HashMapBackend
from tidegate.state.memory.row_backend import TableBackend
from tidegate.state.rocksdb.backend import RocksDBBackend
from tidegate.state.rocksdb.columnar import RocksDBColumnarState
from tidegate.state.rocksdb.store import DEFAULT_MEMORY
from tidegate.types.privacy import shared

_TYPE: Final = "state.backend.type"
_DIRECTORIES: Final = "state.backend.rocksdb.localdir"
_OBJECT_REUSE: Final = "pipeline.object-reuse"
_MEMORY: Final = "state.backend.rocksdb.memory.fixed-per-operator"


def create_keyed_backend(
    settings: Mapping[str, Any],
    key_groups: KeyGroupRange,
    max_parallelism: int,
    clock: Clock | None = None,
    directory: Path | None = None,
) -> TableBackend:
    """Create a backend for one operator of a subtask.

    Args:
        settings: the parsed settings of the job; missing ones have their defaults.
        key_groups: those of the subtask.
        max_parallelism: the number of key groups.
        clock: decides when values expire.
        directory: for local files, unless the settings name one; None: a temporary directory.
    """
    backend: TableBackend
    if settings.get(_TYPE, StateBackendType.HASHMAP) is StateBackendType.HASHMAP:
        backend = HashMapBackend(key_groups, max_parallelism, clock)
    else:
        path = local_directory(settings, key_groups, directory)
        memory = database_memory(settings)
        backend = RocksDBBackend(key_groups, max_parallelism, clock, path, memory)
    if settings.get(_OBJECT_REUSE, False):
        backend.private = shared
    return backend


def create_columnar_state(
    settings: Mapping[str, Any],
    name: str,
    declaration: str,
    keys: KeyIndex,
    columns: Mapping[str, StateColumn],
    key_groups: KeyGroupRange,
    max_parallelism: int,
    directory: Path | None = None,
) -> ColumnarState:
    """Create empty columnar state for one operator of a subtask, with the same settings."""
    state = name, declaration, keys, columns, key_groups, max_parallelism
    if settings.get(_TYPE, StateBackendType.HASHMAP) is StateBackendType.HASHMAP:
        return ColumnarState(*state)
    return RocksDBColumnarState(
        *state, local_directory(settings, key_groups, directory), database_memory(settings)
    )


def local_directory(
    settings: Mapping[str, Any], key_groups: KeyGroupRange, directory: Path | None
) -> Path | None:
    """The directory for a database; subtasks use several directories in turn."""
    directories = settings.get(_DIRECTORIES, ())
    return Path(directories[key_groups.start % len(directories)]) if directories else directory


def database_memory(settings: Mapping[str, Any]) -> int:
    """The memory in bytes for a database and the keys in use."""
    memory = settings.get(_MEMORY)
    return DEFAULT_MEMORY if memory is None else int(memory.get_bytes())
