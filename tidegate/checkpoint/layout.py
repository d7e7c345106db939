"""Names in the directory of a job."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from typing import Final

from xxhash import xxh3_64_intdigest

from tidegate.core.ids import CheckpointId
from tidegate.storage.locations import below

METADATA: Final = "_metadata"
SHARED: Final = "shared"
TASK_OWNED: Final = "taskowned"
_CHECKPOINT: Final = re.compile(r"chk-(\d+)")
_OWNER: Final = re.compile(r"owner-(\d+)")
_LAST_ID: Final = re.compile(r"last-id(-\d+)?")
_NOTED: Final = re.compile(rb"(?:id )?(\d{1,19})(?: [0-9a-f]{16})?")
_CLOSED: Final = re.compile(r"closed-(\d+)-(\d+)-(\d+)")
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


def last_id_of(epoch: int) -> str:
    """The name of the file with the highest checkpoint id of an owner."""
    return f"last-id-{epoch}"


def noted(last_id: int) -> bytes:
    """The content of such a file: the id with its checksum."""
    return b"id %d %016x" % (last_id, xxh3_64_intdigest(b"%d" % last_id))


def id_noted_in(data: bytes) -> CheckpointId | None:
    """The checkpoint id in the content of such a file; None: it is damaged.

    Earlier versions wrote the id alone.
    """
    found = _NOTED.fullmatch(data)
    if found is None or data not in (found[1], noted(int(found[1]))):
        return None
    return CheckpointId(int(found[1]))


def is_last_id(path: str) -> bool:
    """Whether a blob holds the highest checkpoint id of an owner."""
    return _LAST_ID.fullmatch(path) is not None


def closed_by(epoch: int, seen: int, begun: int) -> str:
    """The name of the file in which a driver records which checkpoints are missing.

    Checkpoints after `seen`, up to the highest one `begun`, were missing when the driver claimed
    the directory, or when it gave up publishing them. Any of them that appear later are void.
    """
    return f"closed-{epoch}-{seen}-{begun}"


def is_closing(path: str) -> bool:
    """Whether a blob records void checkpoints."""
    return _CLOSED.fullmatch(path) is not None


def closes_nothing(path: str) -> bool:
    """Whether a blob records that no checkpoint is void."""
    found = _CLOSED.fullmatch(path)
    return found is not None and found[2] == found[3]


def stopped_by(checkpoint_id: int) -> str:
    """The name of the file that marks the job as ended with this checkpoint."""
    return f"stopped-{checkpoint_id}"


def is_stop(path: str) -> bool:
    """Whether a blob marks the job as ended."""
    return _STOPPED.fullmatch(path) is not None


def highest_in(paths: Collection[str]) -> CheckpointId:
    """The highest checkpoint id in the blob names of a job; 0 for none."""
    ids = [id_of(path.partition("/")[0]) or 0 for path in paths]
    begun = [int(found[3]) for path in paths if (found := _CLOSED.fullmatch(path))]
    return CheckpointId(max([*ids, *begun], default=0))


def published(paths: Iterable[str]) -> list[CheckpointId]:
    """The completed checkpoints among the blobs of a job, latest first, without void ones."""
    paths = list(paths)
    void = [range(int(f[2]) + 1, int(f[3]) + 1) for p in paths if (f := _CLOSED.fullmatch(p))]
    parts = (path.split("/") for path in paths)
    ids = (id_of(part[0]) for part in parts if len(part) == 2 and part[1] == METADATA)
    found = (id for id in ids if id is not None and not any(id in each for each in void))
    return sorted(found, reverse=True)


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
    is_book = is_last_id(path) or is_closing(path) or is_stop(path)
    return is_book or epoch_of(path) is not None or is_temporary(path)


def home_of(directory: str, name: str) -> str:
    """The parent of a checkpoint's `taskowned`: the job's directory, or the savepoint itself."""
    return directory if id_of(name) is not None else below(directory, name)
