"""A checkpoint from its trigger to its publication.

    COLLECTING ── all have acknowledged, begin_publication ──▶ PUBLISHING ── published ──▶ COMPLETED
        │                                                          │
        └── declined · expired · subsumed · region failed ──▶ ABORTED ◀── not published ──┘

Once publication has begun, nothing may be deleted or aborted until its outcome is known.
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
    """The life of a pending checkpoint; see the diagram above."""

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
    """How an acknowledgement was received."""

    ACCEPTED = auto()
    DUPLICATE = auto()
    """Already known; its files are in use and must not be deleted."""
    UNKNOWN_SUBTASK = auto()
    """From a subtask that does not take part, such as one of an older attempt; deletable."""


class AbortReason(Enum):
    """Why a checkpoint was aborted, and whether it counts as a failed checkpoint."""

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
    """Collects the acknowledgements of one checkpoint."""

    def __init__(self, barrier: Barrier, plan: CheckpointPlan, *, deadline: float) -> None:
        self.barrier = barrier
        self.plan = plan
        self.is_sent = False
        """Whether the pipelines have its barrier, so that subtasks may act on it."""
        self.deadline = deadline
        self.awaits_next = barrier.request.awaits_next
        """Whether it is published only after a later checkpoint has completed."""
        self.state = PendingState.COLLECTING
        self.abort_reason: AbortReason | None = None
        self._acknowledged: dict[SubtaskId, CheckpointAcknowledged] = {}
        self._enumerators: dict[VertexId, bytes] = {}

    @property
    def checkpoint_id(self) -> CheckpointId:
        return self.barrier.checkpoint_id

    @property
    def missing(self) -> frozenset[SubtaskId]:
        """The subtasks that have not acknowledged yet."""
        return frozenset(self.plan.awaited.keys() - self._acknowledged.keys())

    @property
    def is_ready(self) -> bool:
        """Whether publication can begin."""
        is_whole = self.state is PendingState.COLLECTING and not self.missing
        return is_whole and not self.awaits_next

    def enumerated(self, states: Mapping[VertexId, bytes]) -> None:
        """Add the states of split enumerators, taken when their readers got the barrier."""
        self._enumerators.update(states)

    def acknowledge(self, ack: CheckpointAcknowledged) -> AckResult:
        """Note that a subtask has written its part."""
        if ack.checkpoint_id != self.checkpoint_id:
            raise ProtocolViolation(
                f"checkpoint {self.checkpoint_id} got an acknowledgement of checkpoint "
                f"{ack.checkpoint_id}"
            )
        if self.plan.awaited.get(ack.subtask) != ack.attempt:
            return AckResult.UNKNOWN_SUBTASK
        if ack.subtask in self._acknowledged:
            return AckResult.DUPLICATE
        self._acknowledged[ack.subtask] = ack
        return AckResult.ACCEPTED

    def begin_publication(self, job: CheckpointedJob, wall: float) -> Checkpoint:
        """Assemble the checkpoint; from here on, only the store decides its outcome."""
        if self.missing:
            raise ProtocolViolation(
                f"checkpoint {self.checkpoint_id} cannot be published: "
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
        self._move(PendingState.COMPLETED)

    def not_published(self) -> tuple[SubtaskSnapshot, ...]:
        """It is certain that no metadata was written; returns what can be deleted."""
        if self.state is not PendingState.PUBLISHING:
            raise ProtocolViolation(f"checkpoint {self.checkpoint_id} is {self.state.name}")
        return self._abort(AbortReason.STORAGE)

    def abort(self, reason: AbortReason) -> tuple[SubtaskSnapshot, ...] | None:
        """Abort the checkpoint; returns what can be deleted, None if it is too late to abort."""
        if self.state is not PendingState.COLLECTING:
            return None
        return self._abort(reason)

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
