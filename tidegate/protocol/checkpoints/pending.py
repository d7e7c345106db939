"""A checkpoint from its trigger to its publication.

    COLLECTING ── all have acknowledged, begin_publication ──▶ PUBLISHING ── published ──▶ COMPLETED
        │                                                          │
        └── declined · expired · subsumed · region failed ──▶ ABORTED ◀── not published ──┘

From the moment publication begins nothing may be deleted or aborted until its result is known.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto

from tidegate.checkpoint.checkpoint import Checkpoint
from tidegate.core.errors import ProtocolViolation
from tidegate.core.ids import CheckpointId, SubtaskId, VertexId
from tidegate.protocol.assembly import CheckpointedJob, assemble
from tidegate.protocol.messages import CheckpointAcknowledged
from tidegate.protocol.plan import CheckpointPlan
from tidegate.state.pointers import SubtaskSnapshot
from tidegate.stream.elements import Barrier


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
    UNKNOWN_SUBTASK = auto()
    """Of somebody who does not take part, such as an older attempt; it can be deleted."""


class AbortReason(Enum):
    """Why a checkpoint was aborted: its text, and whether it counts as a failed checkpoint."""

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


class PendingCheckpoint:
    """Gathers the acknowledgements of one checkpoint."""

    def __init__(self, barrier: Barrier, plan: CheckpointPlan, *, deadline: float) -> None:
        self.barrier = barrier
        self.plan = plan
        self.is_sent = False
        """Whether its barrier was handed to the pipelines: from then on subtasks may obey it."""
        self.deadline = deadline
        self.awaits_next = barrier.request.awaits_next
        """Whether a later checkpoint has to complete before it is published."""
        self.state = PendingState.COLLECTING
        self.abort_reason: AbortReason | None = None
        self._acknowledged: dict[SubtaskId, CheckpointAcknowledged] = {}
        self._enumerators: dict[VertexId, bytes] = {}

    @property
    def checkpoint_id(self) -> CheckpointId:
        return self.barrier.checkpoint_id

    @property
    def missing(self) -> frozenset[SubtaskId]:
        """Who has not acknowledged yet."""
        return frozenset(self.plan.awaited.keys() - self._acknowledged.keys())

    @property
    def is_ready(self) -> bool:
        """Whether publication can begin."""
        is_whole = self.state is PendingState.COLLECTING and not self.missing
        return is_whole and not self.awaits_next

    def enumerated(self, states: Mapping[VertexId, bytes]) -> None:
        """Split enumerators were asked what they know, where their readers put the barrier."""
        self._enumerators.update(states)

    def acknowledge(self, ack: CheckpointAcknowledged) -> AckResult:
        """Note that a subtask has written its part."""
        if ack.checkpoint_id != self.checkpoint_id:
            raise ProtocolViolation(
                f"checkpoint {self.checkpoint_id} was given an acknowledgement of "
                f"{ack.checkpoint_id}"
            )
        if self.plan.awaited.get(ack.subtask) != ack.attempt:
            return AckResult.UNKNOWN_SUBTASK
        if ack.subtask in self._acknowledged:
            return AckResult.DUPLICATE
        self._acknowledged[ack.subtask] = ack
        return AckResult.ACCEPTED

    def begin_publication(self, job: CheckpointedJob, wall: float) -> Checkpoint:
        """All have acknowledged: from here on only the store's answer decides."""
        if self.missing:
            raise ProtocolViolation(
                f"checkpoint {self.checkpoint_id} was to be published while "
                f"{len(self.missing)} subtask(s) have not acknowledged it"
            )
        self._move(PendingState.PUBLISHING)
        acks = self._acknowledged
        return assemble(
            job,
            self.barrier,
            {subtask: ack.snapshot for subtask, ack in acks.items()},
            self._enumerators,
            self.plan.finished | {s for s, ack in acks.items() if ack.is_finished},
            wall,
        )

    def published(self) -> None:
        """The metadata is there: the checkpoint is complete."""
        self._move(PendingState.COMPLETED)

    def not_published(self) -> tuple[SubtaskSnapshot, ...]:
        """It is certain that the metadata is not there; returns what can be deleted."""
        if self.state is not PendingState.PUBLISHING:
            raise ProtocolViolation(f"checkpoint {self.checkpoint_id} is {self.state.name}")
        return self._abort(AbortReason.STORAGE)

    def abort(self, reason: AbortReason) -> tuple[SubtaskSnapshot, ...] | None:
        """Give the checkpoint up; returns what can be deleted, None if nothing may be any more."""
        if self.state is not PendingState.COLLECTING:
            return None
        return self._abort(reason)

    def expire(self, now: float) -> tuple[SubtaskSnapshot, ...] | None:
        """Give the checkpoint up if it is past its deadline."""
        return self.abort(AbortReason.EXPIRED) if now >= self.deadline else None

    def _abort(self, reason: AbortReason) -> tuple[SubtaskSnapshot, ...]:
        self._move(PendingState.ABORTED)
        self.abort_reason = reason
        return tuple(ack.snapshot for ack in self._acknowledged.values())

    def _move(self, state: PendingState) -> None:
        if state not in LEGAL_MOVES[self.state]:
            raise ProtocolViolation(
                f"checkpoint {self.checkpoint_id} cannot go from {self.state.name} to {state.name}"
            )
        self.state = state
