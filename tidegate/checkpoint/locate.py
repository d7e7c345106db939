"""Finds checkpoints to start from, by path or by job, without owning their directory."""

from __future__ import annotations

from tidegate.checkpoint.checkpoint import Checkpoint
from tidegate.checkpoint.layout import METADATA, directory_of, epoch_of, id_of, is_part, published
from tidegate.checkpoint.metadata import decode
from tidegate.checkpoint.ownership import owned_since
from tidegate.checkpoint.store import Unreadable
from tidegate.core.errors import BlobNotFound, CorruptCheckpoint, NoCheckpoint, UnsupportedFormat
from tidegate.core.ids import JobId
from tidegate.state.pointers import StoredFile
from tidegate.state.snapshot.reader import CheckpointLocation, location_of
from tidegate.storage.blob_store import BlobStore
from tidegate.storage.filesystem import open_store
from tidegate.storage.locations import below, parent_and_name, shown

_REPAIR = "restore it, or delete it if the job should start fresh"
_GIVE = "specify a savepoint, a chk-<n>, or the directory of a job that has checkpoints"


def open_checkpoint(path: str) -> Checkpoint:
    """The checkpoint at a path or URL: `…/chk-7`, its `_metadata`, or the latest of a job.

    Raises:
        NoCheckpoint: there is none.
        CorruptCheckpoint: it is damaged.
        UnsupportedFormat: a newer Tidegate wrote it.
        StorageError: it cannot be read.
    """
    directory, name = parent_and_name(path)
    if name == METADATA:
        directory, name = parent_and_name(directory)
    store = open_store(directory)
    if store.exists(f"{name}/{METADATA}"):
        if (id := id_of(name)) is not None and id not in published(store.list()):
            raise NoCheckpoint(
                shown(path),
                "it was completed after its job had given it up, so its transactions are aborted",
                "specify an earlier checkpoint or savepoint of the job",
            )
        return _open(store, name)
    latest = next(iter(candidates(path)), None)
    if latest is not None:
        return open_checkpoint(latest)
    raise _nothing(store, name, path)


def candidates(path: str) -> list[str]:
    """The checkpoints in a job's directory as paths or URLs, latest first."""
    return [below(path, directory_of(id)) for id in published(open_store(path).list())]


def find_latest(
    base: BlobStore, *, job_name: str | None = None, job_id: str | None = None
) -> Checkpoint | None:
    """The latest readable checkpoint of a job below the directory that all jobs share.

    Args:
        base: the store of `execution.checkpointing.dir`.
        job_name: selects the job of this name that completed a checkpoint last.
        job_id: selects the job with this id.

    Raises:
        NoCheckpoint: only unreadable ones exist, which may belong to the job.
    """
    jobs = {job_id} if job_id else {path.partition("/")[0] for path in base.list() if "/" in path}
    found: list[Checkpoint] = []
    unreadable: list[Unreadable] = []
    for job in sorted(jobs):
        latest, skipped = _latest(base, job, job_name)
        if latest is not None:
            found.append(latest)
        else:
            unreadable += skipped
    if unreadable and not found:
        raise NoCheckpoint(unreadable[0].path, f"it cannot be read: {unreadable[0].error}", _REPAIR)
    return max(found, key=lambda each: each.metadata.completed_at, default=None)


def find_begun(base: BlobStore, job_name: str) -> JobId | None:
    """The last job of this name that has begun, if none has completed a checkpoint.

    It may have left open transactions in external systems. A job that continues under its id finds
    them, and any checkpoint that it completes meanwhile.

    Raises:
        NoCheckpoint: a damaged file tells of a job, which may be this one.
    """
    jobs: dict[str, list[str]] = {}
    for path in base.list():
        job, _, inner = path.partition("/")
        jobs.setdefault(job, []).append(inner)
    begun: dict[str, float] = {}
    damaged: CorruptCheckpoint | None = None
    for job, paths in jobs.items():
        for owner in (path for path in paths if epoch_of(path) is not None):
            try:
                since = owned_since(base, f"{job}/{owner}", job_name)
            except CorruptCheckpoint as error:
                damaged = error
                continue
            if since is not None:
                begun[job] = max(since, begun.get(job, since))
    if damaged is not None:
        raise NoCheckpoint(damaged.args[0], f"it cannot be read: {damaged}", _REPAIR)
    return JobId(max(begun, key=begun.__getitem__)) if begun else None


def check_files(found: Checkpoint) -> None:
    """Raise CorruptCheckpoint if a file of the checkpoint is missing or too short.

    The content of files is verified when it is read.
    """
    resolve = found.resolver()
    ends: dict[StoredFile, int] = {}
    for segment in found.metadata.file_segments:
        ends[segment.file] = max(ends.get(segment.file, 0), segment.offset + segment.size)
    for file, end in ends.items():
        store, path = resolve(file)
        location = location_of(file, resolve)
        try:
            size = store.size(path)
        except BlobNotFound:
            raise CorruptCheckpoint(location, f"a file of {end} bytes", "none") from None
        if size < end:
            raise CorruptCheckpoint(location, f"{end} bytes", f"{size}")


def _latest(
    base: BlobStore, job: str, job_name: str | None
) -> tuple[Checkpoint | None, list[Unreadable]]:
    """The latest checkpoint of a job with this name, and unreadable ones that may belong to it."""
    skipped: list[Unreadable] = []
    for id in published(path.removeprefix(f"{job}/") for path in base.list(job)):
        name = directory_of(id)
        try:
            found = _open(base, name, job)
        except (CorruptCheckpoint, UnsupportedFormat) as error:
            skipped.append(Unreadable(name, shown(below(base.url, f"{job}/{name}")), error))
            continue
        except BlobNotFound:
            continue
        if job_name is not None and found.metadata.job_name != job_name:
            return None, []
        return found, []
    return None, skipped


def _open(store: BlobStore, name: str, job: str | None = None) -> Checkpoint:
    """The checkpoint of this name, in the store or in the directory of a job there."""
    path = f"{name}/{METADATA}" if job is None else f"{job}/{name}/{METADATA}"
    metadata = decode(store.read(path), shown(below(store.url, path)), id_of(name))
    directory = store.url if job is None else below(store.url, job)
    return Checkpoint(metadata, CheckpointLocation(directory, name))


def _nothing(store: BlobStore, name: str, path: str) -> NoCheckpoint:
    if store.exists(name):
        return NoCheckpoint(shown(path), "it is a file, not a checkpoint", _GIVE)
    present = list(store.list(name))
    if not present:
        return NoCheckpoint(shown(path), "there is no such directory, or it is empty", _GIVE)
    if id_of(name) is not None or any(is_part(each[len(name) + 1 :]) for each in present):
        return NoCheckpoint(
            shown(path),
            f"it has {len(present)} file(s) but no {METADATA}, so it was never completed",
            "specify an earlier checkpoint or savepoint of the job",
        )
    return NoCheckpoint(shown(path), "it contains no checkpoint", _GIVE)
