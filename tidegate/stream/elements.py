"""The elements of a channel, in the order in which they were emitted."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

from tidegate.core.ids import CheckpointId
from tidegate.core.modes import CheckpointingMode, SavepointFormat
from tidegate.stream.batch import Batch


class BarrierKind(Enum):
    """The purpose of a barrier."""

    CHECKPOINT = auto()
    SAVEPOINT = auto()
    STOP = auto()
    """A savepoint after which nothing is emitted."""


@dataclass(frozen=True, slots=True)
class SavepointTarget:
    """Where a savepoint is written, and how."""

    directory: str
    """A path or URL, in which the savepoint has its own directory."""
    name: str
    format: SavepointFormat


@dataclass(frozen=True, slots=True)
class SnapshotRequest:
    """A request for a snapshot; it travels unchanged from the requester into every barrier."""

    kind: BarrierKind = BarrierKind.CHECKPOINT
    savepoint: SavepointTarget | None = None
    """Where to write the state instead of the checkpoint directory."""
    drains: bool = False
    """Whether a stop ends all inputs first, so that operators emit what they hold back."""
    name: str = ""
    """Identifies the requester; empty: a periodic checkpoint."""
    awaits_next: bool = False
    """Whether it is published only after a later checkpoint is complete: until then, a failure
    would roll back what sinks have prepared for it."""


@dataclass(frozen=True, slots=True)
class Barrier:
    """Divides every channel into the records of checkpoint n and those of n + 1."""

    checkpoint_id: CheckpointId
    triggered_at: float
    request: SnapshotRequest = SnapshotRequest()
    mode: CheckpointingMode = CheckpointingMode.EXACTLY_ONCE
    base: CheckpointId | None = None
    """The completed checkpoint that an incremental snapshot may build on."""
    is_unaligned: bool = False
    """Whether it takes effect when the first channel delivers it. Records that other channels
    deliver before their barrier are processed, and stored in the snapshot as records in flight."""

    @property
    def kind(self) -> BarrierKind:
        return self.request.kind

    @property
    def savepoint(self) -> SavepointTarget | None:
        return self.request.savepoint

    @property
    def drains(self) -> bool:
        return self.request.drains


NO_WATERMARK: Final = -(2**63)
"""The watermark before the first one, as in Flink: the smallest 64-bit integer."""
FINAL_WATERMARK: Final = 2**63 - 1
"""The watermark at the end of the input: everything that waits for event time is due."""


@dataclass(frozen=True, slots=True)
class Watermark:
    """No record with a timestamp at or below this (milliseconds since the epoch) follows."""

    timestamp: int

    @property
    def is_final(self) -> bool:
        """Whether the input has ended: no records follow."""
        return self.timestamp >= FINAL_WATERMARK


class WatermarkStatus(Enum):
    """Whether a channel takes part in event time."""

    ACTIVE = auto()
    IDLE = auto()
    """It does not hold back the watermark until it becomes active again."""


@dataclass(frozen=True, slots=True)
class EndOfInput:
    """No records follow on this channel, but barriers may."""


StreamElement = Batch | Barrier | Watermark | WatermarkStatus | EndOfInput
