"""Savepoints and checkpoints of given state, without a job."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tidegate.checkpoint.metadata import CheckpointMetadata, OperatorRecord, encode
from tidegate.core.ids import CheckpointId, JobId, OperatorId
from tidegate.core.modes import SavepointFormat
from tidegate.graph.translate import operator_id_of
from tidegate.savepoint import StateReader
from tidegate.state.backend import FrozenState, KeyedStateBackend
from tidegate.state.keys.key_groups import range_of
from tidegate.state.keys.stable_hash import stable_hash
from tidegate.state.memory.backend import HashMapBackend
from tidegate.state.operator_state import FrozenOperatorState
from tidegate.state.pointers import OperatorHandle
from tidegate.state.rocksdb.backend import RocksDBBackend
from tidegate.state.snapshot.reader import StoredImage
from tidegate.state.snapshot.writer import FileTarget, SnapshotWriter, TableDirectory
from tidegate.storage.local import LocalStore
from tidegate.stream.elements import BarrierKind

BACKENDS: dict[str, Callable[..., KeyedStateBackend]] = {
    "hashmap": HashMapBackend,
    "rocksdb": RocksDBBackend,
}
GROUPS = 128
Fill = Callable[[Any], FrozenState | None]
"""Puts state into a backend, or has some of its own."""


def use(backend: Any, key: Any) -> bool:
    """Make a key the current one, if the backend owns it."""
    if stable_hash(key) % GROUPS not in backend.key_groups:
        return False
    [backend.place] = backend.places_of([key])
    backend.current_key = key
    return True


def stored(
    path: Path,
    operators: Mapping[str, Fill],
    *,
    backend: str = "hashmap",
    format: SavepointFormat = SavepointFormat.CANONICAL,
    parallelism: int = 2,
    states: Mapping[str, Sequence[Sequence[FrozenOperatorState]]] | None = None,
    splits: Mapping[str, Sequence[Any]] | None = None,
) -> Path:
    """A savepoint of operators by uid, each with what a function puts into its backends."""
    store = LocalStore(path.parent)
    writer = SnapshotWriter(FileTarget(store, path.name, 1024, shares=False, format=format))
    records: dict[OperatorId, OperatorRecord] = {}
    for uid, fill in operators.items():
        subtasks = {}
        for number in range(parallelism):
            key_groups = range_of(number, parallelism, GROUPS)
            live = BACKENDS[backend](key_groups, GROUPS)
            frozen = fill(live) or live.freeze()
            keyed = writer.write_keyed(frozen, key_groups, {}, TableDirectory(uid, number))
            frozen.release()
            live.close()
            own = (states or {}).get(uid)
            subtasks[number] = OperatorHandle(
                operator_id=operator_id_of(uid),
                keyed=keyed,
                operator=own and writer.write(pickle.dumps(tuple(own[number]), 5)),
                operator_states=tuple(state.facts for state in own[number]) if own else (),
                source_splits=tuple(
                    pickle.dumps(split)
                    for split in (splits or {}).get(uid, ())[number::parallelism]
                ),
            )
        records[operator_id_of(uid)] = OperatorRecord(
            operator_id=operator_id_of(uid),
            uid=uid,
            name=f"the {uid}",
            parallelism=parallelism,
            max_parallelism=GROUPS,
            subtasks=subtasks,
        )
    writer.close()
    metadata = CheckpointMetadata(
        job_id=JobId("a" * 32),
        job_name="a job",
        checkpoint_id=CheckpointId(7),
        kind=BarrierKind.SAVEPOINT,
        triggered_at=1.0,
        completed_at=2.0,
        operators=records,
    )
    store.create_if_absent(f"{path.name}/_metadata", encode(metadata))
    return path


def restored(reader: StateReader, uid: str, backend: str = "hashmap") -> Any:
    """A backend with all the keyed state of an operator, as a job restores it."""
    live = BACKENDS[backend](range_of(0, 1, GROUPS), GROUPS)
    handles = reader.operator(uid).subtasks.values()
    live.restore([StoredImage(h.keyed, reader.resolve) for h in handles if h.keyed])
    return live
