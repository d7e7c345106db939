"""Names in the directory of a job."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from typing import Final

from tidegate.core.ids import CheckpointId
from tidegate.storage.locations import below

METADATA: Final = "_metadata"
SHARED: Final = "shared"
TASK_OWNED: Final = "taskowned"
_CHECKPOINT: Final = re.compile(r"chk-(\d+)")
_OWNER: Final = re.compile(r"owner-(\d+)")
_LAST_ID: Final = re.compile(r"last-id(?:-\d+)?(?:-(\d+))?")
"""Earlier versions kept the id in the file."""
_CLOSED: Final = re.compile(r"closed-(\d+)-(\d+)-(\d+)")
_VOID: Final = re.compile(r"void-(\d+)-(\d+)")
_STOPPED: Final = re.compile(r"stopped-(\d+)")
_PART: Final = re.compile(r"[0-9a-f]{32}|(state|timers|taskowned)/.+")
_TEMPORARY: Final = re.compile(r"(.*/)?[^/]*\.[0-9a-f]{16}\.tmp")


def directory_of(checkpoint_id: int) -> str:
    """The name of a checkpoint's directory within its job's directory."""
    return f"chk-{checkpoint_id}"


def id_of(directory: str) -> CheckpointId | None:
    """The checkpoint id in a directory name; None: it is another directory."""
    found = _CHECKPOINT.fullmatch(directory)
    return CheckpointId(int(found[1])) if found else None


def owner_of(epoch: int) -> str:
    """The name of the file that makes a driver the owner of the directory."""
    return f"owner-{epoch}"


def epoch_of(path: str) -> int | None:
    """The epoch of an owner file; None: it is another file."""
    found = _OWNER.fullmatch(path)
    return int(found[1]) if found else None


def last_id_of(epoch: int, checkpoint_id: int) -> str:
    """The name of the file in which an owner records that this id is used."""
    return f"last-id-{epoch}-{checkpoint_id}"


def is_last_id(path: str) -> bool:
    """Whether a blob records that a checkpoint id is used."""
    return _LAST_ID.fullmatch(path) is not None


def closed_by(epoch: int, seen: int, begun: int) -> str:
    """The name of the file in which a driver records what it found in the directory.

    The latest checkpoint was `seen`, and those after it, up to the highest one `begun`, are void if
    they appear later.
    """
    return f"closed-{epoch}-{seen}-{begun}"


def closes_nothing(path: str, published: Collection[int]) -> bool:
    """Whether a blob records neither a void checkpoint nor that one of these was seen."""
    found = _CLOSED.fullmatch(path)
    return found is not None and found[2] == found[3] and int(found[2]) not in published


def void_by(epoch: int, checkpoint_id: int) -> str:
    """The name of the file with which a driver makes a checkpoint void that it cannot publish."""
    return f"void-{epoch}-{checkpoint_id}"


def stopped_by(checkpoint_id: int) -> str:
    """The name of the file that marks the job as ended with this checkpoint."""
    return f"stopped-{checkpoint_id}"


def stop_in(path: str) -> CheckpointId | None:
    """The savepoint with which this blob marks the job as ended; None: it is another blob."""
    found = _STOPPED.fullmatch(path)
    return CheckpointId(int(found[1])) if found else None


def highest_in(paths: Iterable[str]) -> CheckpointId:
    """The highest checkpoint id in the blob names of a job; 0 for none."""
    ids = [0]
    for path in paths:
        ids.append(id_of(path.partition("/")[0]) or 0)
        found = _CLOSED.fullmatch(path) or _VOID.fullmatch(path) or _LAST_ID.fullmatch(path)
        if found and found.lastindex:
            ids.append(int(found[found.lastindex]))
    return CheckpointId(max(ids))


def published(paths: Iterable[str]) -> list[CheckpointId]:
    """The completed checkpoints among the blobs of a job, latest first, without void ones.

    What a driver has closed or declared void may have been found by a later one before it was told:
    that one runs on from there, so the checkpoint counts.
    """
    paths = list(paths)
    closings = [tuple(map(int, f.groups())) for p in paths if (f := _CLOSED.fullmatch(p))]
    void = [(int(f[1]), range(int(f[2]), int(f[2]) + 1)) for f in map(_VOID.fullmatch, paths) if f]
    void += [(epoch, range(seen + 1, begun + 1)) for epoch, seen, begun in closings]
    seen_by = {seen: epoch for epoch, seen, _ in sorted(closings)}
    parts = (path.split("/") for path in paths)
    ids = (id_of(part[0]) for part in parts if len(part) == 2 and part[1] == METADATA)
    return sorted(
        (
            id
            for id in ids
            if id is not None
            and not any(id in each and seen_by.get(id, 0) <= epoch for epoch, each in void)
        ),
        reverse=True,
    )


def is_temporary(path: str) -> bool:
    """Whether an interrupted `put` of a store left this blob."""
    return _TEMPORARY.fullmatch(path) is not None


def is_part(path: str) -> bool:
    """Whether a blob in a directory looks like part of a savepoint without metadata."""
    return _PART.fullmatch(path) is not None or is_temporary(path)


def is_ours(path: str) -> bool:
    """Whether a blob belongs to the layout, so that it may be deleted with the job."""
    directory, _, inner = path.partition("/")
    if inner:
        return directory in (SHARED, TASK_OWNED) or id_of(directory) is not None
    is_book = any(each.fullmatch(path) for each in (_OWNER, _LAST_ID, _CLOSED, _VOID, _STOPPED))
    return is_book or is_temporary(path)


def home_of(directory: str, name: str) -> str:
    """The parent of a checkpoint's `taskowned`: the job's directory, or the savepoint itself."""
    return directory if id_of(name) is not None else below(directory, name)
