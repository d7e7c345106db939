"""A checkpoint from its trigger to its publication.

    COLLECTING ── all have acknowledged, begin_publication ──▶ PUBLISHING ── published ──▶ COMPLETED
        │                                                          │
        └── declined · expired · subsumed · region failed ──▶ ABORTED ◀── not published ──┘

From the moment publication begins nothing may be deleted or aborted until its result is known.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto
from typing import Generic, TypeVar

from tidegate.core.errors import ProtocolViolation
from tidegate.core.ids import CheckpointId, SubtaskId, VertexId
from tidegate.protocol.completed import Acknowledgement, CompletedCheckpoint
from tidegate.protocol.plan import CheckpointPlan
from tidegate.stream.elements import BarrierKind, SavepointTarget

H = TypeVar("H")


class PendingState(Enum):
    """The life of a pending checkpoint; the diagram is in the module's docstring."""

    COLLECTING = auto()
    PUBLISHING = auto()
    COMPLETED = auto()
    ABORTED = auto()


LEGAL_MOVES: dict[PendingState, set[PendingState]] = {
    PendingState.COLLECTING: {PendingState.PUBLISHING, PendingState.ABORTED},
    PendingState.PUBLISHING: {PendingState.COMPLETED, PendingState.ABORTED},
    PendingState.COMPLETED: set(),
    PendingState.ABORTED: set(),
}


class AckResult(Enum):
    """What an acknowledgement was worth."""

    ACCEPTED = auto()
    DUPLICATE = auto()
    """Already known. It names what is in use: nothing of it may be deleted."""
    LATE = auto()
    """The checkpoint was aborted: what the acknowledgement names can be deleted."""
    UNKNOWN_SUBTASK = auto()
    """Of somebody who does not take part, such as an older attempt; it can be deleted."""


class AbortReason(Enum):
    """Why a checkpoint was given up: its text, and whether it counts as a failed checkpoint."""

    DECLINED = ("a subtask could not take its snapshot", True)
    EXPIRED = ("it was not complete within its timeout", True)
    STORAGE = ("its state or metadata could not be written", True)
    SUBSUMED = ("a newer one completed before it", False)
    SKIPPED = ("a newer barrier overtook its own in a subtask", False)
    REGION_FAILED = ("a region failed", False)
    STOPPING = ("the job is being stopped or cancelled", False)

    def __init__(self, text: str, counts: bool) -> None:
        self.text = text
        self.counts = counts


class PendingCheckpoint(Generic[H]):
    """Gathers the acknowledgements of one checkpoint."""

    def __init__(
        self,
        checkpoint_id: CheckpointId,
        plan: CheckpointPlan,
        *,
        kind: BarrierKind = BarrierKind.CHECKPOINT,
        savepoint: SavepointTarget | None = None,
        triggered_at: float,
        deadline: float,
    ) -> None:
        self.checkpoint_id = checkpoint_id
        self.plan = plan
        self.kind = kind
        self.savepoint = savepoint
        self.triggered_at = triggered_at
        self.deadline = deadline
        self._state = PendingState.COLLECTING
        self._abort_reason: AbortReason | None = None
        self._acknowledged: dict[SubtaskId, Acknowledgement[H]] = {}
        self._enumerators: dict[VertexId, bytes] = {}

    @property
    def state(self) -> PendingState:
        return self._state

    @property
    def abort_reason(self) -> AbortReason | None:
        return self._abort_reason

    @property
    def missing(self) -> frozenset[SubtaskId]:
        """Who has not acknowledged yet."""
        return frozenset(self.plan.awaited.keys() - self._acknowledged.keys())

    @property
    def is_ready(self) -> bool:
        """Whether publication can begin."""
        return self._state is PendingState.COLLECTING and not self.missing

    def enumerated(self, states: Mapping[VertexId, bytes]) -> None:
        """Split enumerators were asked what they know, where their readers put the barrier."""
        self._enumerators.update(states)

    def acknowledge(self, ack: Acknowledgement[H]) -> AckResult:
        """Note that a subtask has written its part."""
        if ack.checkpoint_id != self.checkpoint_id:
            raise ProtocolViolation(
                f"checkpoint {self.checkpoint_id} was given an acknowledgement of "
                f"{ack.checkpoint_id}"
            )
        if self.plan.awaited.get(ack.subtask) != ack.attempt:
            return AckResult.UNKNOWN_SUBTASK
        if self._state is PendingState.ABORTED:
            return AckResult.LATE
        if ack.subtask in self._acknowledged:
            return AckResult.DUPLICATE
        self._acknowledged[ack.subtask] = ack
        return AckResult.ACCEPTED

    def begin_publication(self, now: float) -> CompletedCheckpoint[H]:
        """All have acknowledged: from here on only the store's answer decides."""
        if self.missing:
            raise ProtocolViolation(
                f"checkpoint {self.checkpoint_id} was to be published while "
                f"{len(self.missing)} subtask(s) have not acknowledged it"
            )
        self._move(PendingState.PUBLISHING)
        acks = self._acknowledged
        return CompletedCheckpoint(
            checkpoint_id=self.checkpoint_id,
            kind=self.kind,
            savepoint=self.savepoint,
            triggered_at=self.triggered_at,
            completed_at=now,
            snapshots={subtask: ack.snapshot for subtask, ack in acks.items()},
            enumerators=dict(self._enumerators),
            finished=self.plan.finished | {s for s, ack in acks.items() if ack.finished},
            size=sum(ack.size for ack in acks.values()),
        )

    def published(self) -> None:
        """The metadata is there: the checkpoint is complete."""
        self._move(PendingState.COMPLETED)

    def not_published(self) -> tuple[H, ...]:
        """It is certain that the metadata is not there; returns what can be deleted."""
        if self._state is not PendingState.PUBLISHING:
            raise ProtocolViolation(f"checkpoint {self.checkpoint_id} is {self._state.name}")
        return self._abort(AbortReason.STORAGE)

    def abort(self, reason: AbortReason) -> tuple[H, ...] | None:
        """Give the checkpoint up; returns what can be deleted, None if nothing may be any more."""
        if self._state is not PendingState.COLLECTING:
            return None
        return self._abort(reason)

    def expire(self, now: float) -> tuple[H, ...] | None:
        """Give the checkpoint up if it is past its deadline."""
        return self.abort(AbortReason.EXPIRED) if now >= self.deadline else None

    def _abort(self, reason: AbortReason) -> tuple[H, ...]:
        self._move(PendingState.ABORTED)
        self._abort_reason = reason
        return tuple(ack.snapshot for ack in self._acknowledged.values())

    def _move(self, state: PendingState) -> None:
        if state not in LEGAL_MOVES[self._state]:
            raise ProtocolViolation(
                f"checkpoint {self.checkpoint_id} cannot go from {self._state.name} to {state.name}"
            )
        self._state = state
