"""Where a job's checkpoints live, and what it finds there at its start."""

from __future__ import annotations

import logging
import pickle
from dataclasses import dataclass, replace

from tidegate.checkpoint.checkpoint import Checkpoint
from tidegate.checkpoint.layout import directory_of
from tidegate.checkpoint.locate import candidates, find_begun, find_latest, open_checkpoint
from tidegate.checkpoint.memory_store import MemoryCheckpointStore
from tidegate.checkpoint.store import CheckpointStore, Unreadable
from tidegate.core.checkpoint_settings import LATEST, CheckpointSettings
from tidegate.core.errors import (
    ConfigError,
    CorruptCheckpoint,
    JobStopped,
    NoCheckpoint,
    TidegateError,
    UnsupportedFormat,
)
from tidegate.core.ids import CheckpointId, JobId, new_job_id
from tidegate.core.modes import CheckpointStorageType
from tidegate.state.pointers import OperatorHandle
from tidegate.state.snapshot.reader import CheckpointLocation, read_segment
from tidegate.storage.filesystem import open_store
from tidegate.storage.locations import below, parent_and_name, shown

_log = logging.getLogger("tidegate.checkpoint")


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointHome:
    """The store of a job, and the checkpoints it can resume from."""

    job_id: JobId
    store: CheckpointStore | MemoryCheckpointStore
    retained: tuple[Checkpoint, ...] = ()
    """Checkpoints of an earlier run of this job, oldest first."""
    origins: tuple[Checkpoint, ...] = ()
    """Checkpoints of other owners to start from, the preferred one last."""
    damaged: tuple[Unreadable, ...] = ()
    """Unreadable checkpoints that are later than all of these."""

    @property
    def directory(self) -> str | None:
        """The URL of the job's directory; None: the driver's memory."""
        return self.store.directory

    @property
    def next_id(self) -> CheckpointId:
        return CheckpointId(self.store.highest_id + 1)


def open_home(job_name: str, settings: CheckpointSettings) -> CheckpointHome:
    """Find the checkpoint to resume from, and take ownership of the directory for new ones.

    A job that resumes from `latest` is the same job: it keeps its id and its directory. A job that
    resumes from a path is a new one and leaves what it finds there to its owner.
    """
    directory = _directory(settings)
    path = settings.restore_path
    job_id = new_job_id()
    origins: tuple[Checkpoint, ...] = ()
    damaged: tuple[Unreadable, ...] = ()
    resumes = False
    if path == LATEST:
        if settings.directory is None:
            raise ConfigError(
                "execution.state-recovery.path",
                path,
                "set execution.checkpointing.dir to the checkpoint directory of the last run",
            )
        base = open_store(settings.directory)
        unreadable: NoCheckpoint | None = None
        begun: JobId | None = None
        try:
            # It is found first, because it may end and remove its checkpoints.
            begun = find_begun(base, job_name)
        except NoCheckpoint as error:
            unreadable = error
        found = find_latest(base, job_name=job_name)
        if found is None and unreadable is not None:
            raise unreadable
        if found is None:
            _log.warning(
                "job %r has no checkpoint in %s: it starts fresh",
                job_name,
                shown(settings.directory),
            )
            job_id, resumes = begun or job_id, begun is not None
        elif directory is None:
            origins, damaged = _origins(below(settings.directory, found.metadata.job_id))
        else:
            job_id, resumes = found.metadata.job_id, True
    elif path is not None:
        origins, damaged = _origins(path)
    if directory is None:
        return _home(job_id, MemoryCheckpointStore(), origins, damaged)
    store = CheckpointStore(open_store(below(directory, job_id)), job_name)
    if resumes and store.ownership.is_first and not store.highest_id:
        # The job has ended since it was found, and its driver has removed everything.
        store.remove_if_empty()
        raise JobStopped(shown(store.directory), "", "")
    store.clean_leftovers()
    return _home(job_id, store, origins, damaged)


def take_over(predecessor: CheckpointHome, job_name: str) -> CheckpointHome:
    """The same directory, for the same job under another plan."""
    store = predecessor.store
    if predecessor.directory is not None:
        store = CheckpointStore(open_store(predecessor.directory), job_name)
    return _home(predecessor.job_id, store)


def _home(
    job_id: JobId,
    store: CheckpointStore | MemoryCheckpointStore,
    origins: tuple[Checkpoint, ...] = (),
    damaged: tuple[Unreadable, ...] = (),
) -> CheckpointHome:
    directory = store.directory
    found = store.retained()
    unreadable = list(found.unreadable)
    retained: list[Checkpoint] = []
    for metadata in found.checkpoints:
        name = directory_of(metadata.checkpoint_id)
        location = None if directory is None else CheckpointLocation(directory, name)
        checkpoint = Checkpoint(metadata, location)
        try:
            retained.append(_with_facts(checkpoint))
        except CorruptCheckpoint as error:
            unreadable.append(Unreadable(name, checkpoint.path, error))
    for each in unreadable:
        _left_out(each.path, each.error)
    latest = retained[-1].checkpoint_id if retained else 0
    return CheckpointHome(
        job_id=job_id,
        store=store,
        retained=tuple(retained),
        origins=origins,
        damaged=(*damaged, *(each for each in unreadable if each.checkpoint_id > latest)),
    )


def _directory(settings: CheckpointSettings) -> str | None:
    """The directory for checkpoints; None: they are kept in memory, or disabled."""
    if not settings.is_enabled or settings.storage is CheckpointStorageType.JOBMANAGER:
        return None
    if settings.storage is CheckpointStorageType.FILESYSTEM and settings.directory is None:
        raise ConfigError(
            "execution.checkpointing.storage",
            "filesystem",
            "set execution.checkpointing.dir to the directory for checkpoints as well",
        )
    return settings.directory


def _with_facts(checkpoint: Checkpoint) -> Checkpoint:
    """Add the facts about operator state that older versions did not store."""

    def with_facts(handle: OperatorHandle) -> OperatorHandle:
        if handle.operator is None or handle.operator_states:
            return handle
        states = pickle.loads(read_segment(handle.operator, checkpoint.resolver()))
        return replace(handle, operator_states=tuple(state.facts for state in states))

    metadata = checkpoint.metadata
    operators = {
        id: replace(record, subtasks={i: with_facts(each) for i, each in record.subtasks.items()})
        for id, record in metadata.operators.items()
    }
    return replace(checkpoint, metadata=replace(metadata, operators=operators))


def _origins(path: str) -> tuple[tuple[Checkpoint, ...], tuple[Unreadable, ...]]:
    """The checkpoint at a path, or all of a job's directory, oldest first; and damaged ones.

    Unreadable checkpoints are skipped, and returned if they are later than all others.
    """
    paths = candidates(path)
    points: list[Checkpoint] = []
    damaged: list[Unreadable] = []
    for each in reversed(paths or [path]):
        try:
            points.append(_with_facts(open_checkpoint(each)))
            damaged.clear()
        except (CorruptCheckpoint, UnsupportedFormat, NoCheckpoint) as error:
            if len(paths) < 2:
                raise
            _left_out(each, error)
            damaged.append(Unreadable(parent_and_name(each)[1], shown(each), error))
    if not points:
        raise NoCheckpoint(shown(path), "none of its checkpoints can be read", "specify another")
    return tuple(points), tuple(damaged)


def _left_out(path: str, error: TidegateError) -> None:
    _log.error("checkpoint %s is skipped: %s", path, error)
