"""Reads chunks of keyed state from the files of a database, to restore other backends."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from tidegate.state.backend import PayloadForm, StateChunk, StateMetadata
from tidegate.state.chunks import as_column, chunk_of
from tidegate.state.columnar.column_rows import RowCodec
from tidegate.state.columns import key_names, to_bytes
from tidegate.state.keys.key_groups import KeyGroupRange
from tidegate.state.keys.key_order import runs_of
from tidegate.state.keys.key_rows import KEYS_PER_PART, pickled_keys, stored_columns
from tidegate.state.rocksdb.database import Database
from tidegate.state.rocksdb.entries import (
    bounds_of,
    group_of,
    is_timer,
    key_of,
    payload_of,
    timer_of,
)
from tidegate.state.rocksdb.files import DatabaseFacts, adopt


def chunks_of_database(
    directory: Path, key_groups: KeyGroupRange | None = None
) -> Iterator[StateChunk]:
    """The entries of these key groups, by default all, of a closed database.

    Args:
        directory: the native files of an image, as put there by `KeyedStateImage.fetch`.
        key_groups: the wanted key groups.
    """
    adopt(directory)
    facts = DatabaseFacts.read(directory)
    database = Database.read_only(directory)
    try:
        yield from _chunks(database, facts, key_groups or facts.key_groups)
    finally:
        database.close()


def _chunks(
    database: Database, facts: DatabaseFacts, key_groups: KeyGroupRange
) -> Iterator[StateChunk]:
    gathered = [_Gathered(metadata, facts) for metadata in facts.states]
    for key, content in database.scan(*bounds_of(key_groups)):
        entries = gathered[int.from_bytes(key[-2:], "big")]
        entries.add(key, content)
        if len(entries.groups) == KEYS_PER_PART:
            yield entries.take()
    for entries in gathered:
        if entries.groups:
            yield entries.take()


class _Gathered:
    """Entries of one state, ordered by key group, until they fill a chunk."""

    def __init__(self, metadata: StateMetadata, facts: DatabaseFacts) -> None:
        self._metadata = metadata
        self._facts = facts
        self.groups: list[int] = []
        self._keys: list[Any] = []
        self._payloads: list[Any] = []

    def add(self, key: bytes, content: bytes) -> None:
        stem, payload = key[:-2], payload_of(content)
        value: Any = payload
        if is_timer(stem):
            stem, value = timer_of(stem)
        elif self._metadata.form is PayloadForm.PICKLE:
            value = pickle.loads(payload)
        self.groups.append(group_of(key))
        self._keys.append(key_of(stem, content))
        self._payloads.append(value)

    def take(self) -> StateChunk:
        runs = runs_of(np.array(self.groups, np.uint16))
        if self._metadata.form is PayloadForm.PICKLE:
            values = as_column(self._payloads)
            chunk = chunk_of(self._metadata.name, runs, self._stored_keys(), values)
        else:
            chunk = StateChunk(self._metadata.name, runs, self._rows())
        self.groups, self._keys, self._payloads = [], [], []
        return chunk

    def _stored_keys(self) -> bytes:
        if self._facts.keys is None:
            return pickled_keys(self._keys)
        return stored_columns(self._facts.keys.columns(self._keys))

    def _rows(self) -> bytes:
        keys, rows = self._facts.keys, self._facts.rows
        assert keys is not None and rows is not None, "a columnar state has both"
        columns: list[pa.Array[Any]] = keys.columns(self._keys).columns
        names = key_names(len(columns), is_tuple=keys.is_tuple)
        return to_bytes([*columns, *RowCodec(rows).decode(self._payloads)], [*names, *rows.names])
