"""Savepoints: checkpoints that the user requests, owns, and may move."""

from __future__ import annotations

import os
import secrets
from collections.abc import Collection, Iterable, Sequence

from tidegate.checkpoint.layout import METADATA, SHARED, id_of, is_temporary
from tidegate.checkpoint.metadata import CheckpointMetadata, decode, encode
from tidegate.core.errors import NoCheckpoint, StorageError
from tidegate.core.ids import JobId
from tidegate.core.modes import SavepointFormat
from tidegate.state.pointers import path_of
from tidegate.storage.blob_store import BlobStore
from tidegate.storage.filesystem import open_store
from tidegate.storage.locations import below, local_path, parent_and_name, shown
from tidegate.stream.elements import SavepointTarget

_JOB_LETTERS = 6


def new_savepoint(directory: str, job_id: JobId, format: SavepointFormat) -> SavepointTarget:
    """A new directory, named as in Flink: `savepoint-<job>-<random>`."""
    name = f"savepoint-{job_id[:_JOB_LETTERS]}-{secrets.token_hex(6)}"
    plain = str.__str__(directory)  # slots cannot import an enum of the program
    return SavepointTarget(plain, name, format)


def path_of_savepoint(target: SavepointTarget) -> str:
    """Its path, without credentials."""
    return shown(below(target.directory, target.name))


def publish_savepoint(target: SavepointTarget, metadata: CheckpointMetadata) -> str:
    """Complete the savepoint; returns its path or URL.

    Raises:
        StorageError: it is incomplete, or the outcome is unknown.
    """
    path = f"{target.name}/{METADATA}"
    if not open_store(target.directory).create_if_absent(path, encode(metadata)):
        where = path_of_savepoint(target)
        raise StorageError(where, "another process has written there", "request it again")
    return path_of_savepoint(target)


def remove_savepoint(target: SavepointTarget) -> None:
    """Delete all files of a savepoint."""
    open_store(target.directory).delete(target.name)


def dispose(path: str | os.PathLike[str]) -> tuple[str, ...]:
    """Delete a savepoint, or a checkpoint with the shared files that no other one references.

    Args:
        path: its directory, as a path or URL.

    Returns:
        Foreign files in the directory, as relative paths; they are kept.

    Raises:
        NoCheckpoint: there is none at the path. Nothing is deleted.
        CorruptCheckpoint, UnsupportedFormat: its files are unknown. Nothing is deleted.
        StorageError: the storage failed.
    """
    path = os.fspath(path)
    directory, name = _directory_and_name(path)
    store = open_store(directory)
    if not store.exists(f"{name}/{METADATA}"):
        raise NoCheckpoint(shown(path), "there is no savepoint", "specify the path of one")
    metadata = _read(store, name)
    unneeded = metadata.shared_files
    if unneeded:
        others = {p.partition("/")[0] for p in store.list() if p.endswith(f"/{METADATA}")} - {name}
        unneeded -= frozenset[str]().union(*(_read(store, each).shared_files for each in others))
    own = {f"{name}/{METADATA}", *(path_of(file, name) for file in metadata.files)}
    present = list(store.list(name))
    foreign = [each for each in present if each not in own and not is_temporary(each)]
    store.delete(f"{name}/{METADATA}")
    for each in _without(foreign, present, name):
        store.delete(each)
    for file in unneeded:
        store.delete(f"{SHARED}/{file}")
    return tuple(sorted(each[len(name) + 1 :] for each in foreign))


def checkpoint_in_use(path: str, running: Collection[str]) -> str | None:
    """Why this checkpoint must not be deleted, as a sentence; None: no running job needs it.

    Args:
        path: a savepoint or checkpoint.
        running: the ids of the jobs that run.
    """
    directory, name = _directory_and_name(path)
    _, owner = parent_and_name(directory)
    if id_of(name) is None or owner not in running:
        return None
    return (
        f"{shown(path)} is a checkpoint of job {owner}, which is running and deletes it itself "
        "when it no longer needs it"
    )


def _directory_and_name(path: str) -> tuple[str, str]:
    """The directory of a savepoint or checkpoint and its name there, links resolved."""
    local = local_path(path)
    directory, name = parent_and_name(path if local is None else str(local.resolve()))
    return parent_and_name(directory) if name == METADATA else (directory, name)


def _without(foreign: Sequence[str], present: Iterable[str], name: str) -> set[str]:
    """What to delete so that foreign blobs stay: the directory, subdirectories, or single blobs."""
    if not foreign:
        return {name}
    parts = {each: "/".join(each.split("/")[:2]) for each in present}
    mixed = {parts[each] for each in foreign}
    return {each if part in mixed else part for each, part in parts.items() if each not in foreign}


def _read(store: BlobStore, name: str) -> CheckpointMetadata:
    path = f"{name}/{METADATA}"
    return decode(store.read(path), shown(below(store.url, path)))
