"""Savepoints: checkpoints that the user asks for, owns, and may carry elsewhere."""

from __future__ import annotations

import secrets

from tidegate.checkpoint.layout import METADATA, SHARED
from tidegate.checkpoint.metadata import CheckpointMetadata, decode, encode
from tidegate.core.errors import NoCheckpoint, StorageError
from tidegate.core.ids import JobId
from tidegate.core.modes import SavepointFormat
from tidegate.storage.blob_store import BlobStore
from tidegate.storage.filesystem import open_store
from tidegate.storage.locations import below, parent_and_name, shown
from tidegate.stream.elements import SavepointTarget

_JOB_LETTERS = 6


def new_savepoint(directory: str, job_id: JobId, format: SavepointFormat) -> SavepointTarget:
    """A place that nobody else uses, named as in Flink: `savepoint-<job>-<something>`."""
    name = f"savepoint-{job_id[:_JOB_LETTERS]}-{secrets.token_hex(6)}"
    return SavepointTarget(directory, name, format)


def path_of_savepoint(target: SavepointTarget) -> str:
    """Where it is, without credentials."""
    return shown(below(target.directory, target.name))


def publish_savepoint(target: SavepointTarget, metadata: CheckpointMetadata) -> str:
    """Make it complete; returns its path or URL.

    Raises:
        StorageError: it is not, or nobody knows.
    """
    path = f"{target.name}/{METADATA}"
    if not open_store(target.directory).create_if_absent(path, encode(metadata)):
        where = path_of_savepoint(target)
        raise StorageError(where, "somebody else has written there", "ask for it again")
    return path_of_savepoint(target)


def remove_savepoint(target: SavepointTarget) -> None:
    """Delete what there is of it."""
    open_store(target.directory).delete(target.name)


def dispose(path: str) -> None:
    """Delete a savepoint, or a checkpoint with the shared files that no other one needs.

    Raises:
        NoCheckpoint: there is none, so nothing is deleted.
    """
    directory, name = parent_and_name(path)
    if name == METADATA:
        directory, name = parent_and_name(directory)
    store = open_store(directory)
    if not store.exists(f"{name}/{METADATA}"):
        raise NoCheckpoint(shown(path), "there is no savepoint", "give the path of one")
    unneeded = _shared_by(store, name)
    if unneeded:
        others = {p.partition("/")[0] for p in store.list() if p.endswith(f"/{METADATA}")} - {name}
        unneeded -= frozenset[str]().union(*(_shared_by(store, other) for other in others))
    store.delete(f"{name}/{METADATA}")
    store.delete(name)
    for file in unneeded:
        store.delete(f"{SHARED}/{file}")


def _shared_by(store: BlobStore, name: str) -> frozenset[str]:
    path = f"{name}/{METADATA}"
    return decode(store.read(path), shown(below(store.url, path))).shared_files
