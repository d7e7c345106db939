"""Requested checkpoints and savepoints, until they are answered."""

from __future__ import annotations

import uuid
from concurrent.futures import Future
from dataclasses import dataclass, field

from tidegate.core.errors import SavepointFailed
from tidegate.core.ids import CheckpointId
from tidegate.graph.job_graph import JobGraph
from tidegate.stream.elements import BarrierKind, SavepointTarget, SnapshotRequest


@dataclass(frozen=True, slots=True)
class SnapshotOrder:
    """A request for a checkpoint, a savepoint, or a stop with a savepoint."""

    request: SnapshotRequest
    cancels: bool = False
    """Whether the job is cancelled once it is complete."""
    successor: JobGraph | None = None
    """The plan under which the job resumes from it, if it does."""
    begun: Future[CheckpointId] = field(default_factory=Future, compare=False)
    """Its checkpoint id; never set if it is refused earlier."""
    answer: Future[str] = field(default_factory=Future, compare=False)
    """Its path, or why it failed."""

    @classmethod
    def of(
        cls,
        kind: BarrierKind,
        savepoint: SavepointTarget | None = None,
        *,
        drains: bool = False,
        cancels: bool = False,
        successor: JobGraph | None = None,
    ) -> SnapshotOrder:
        """An order under a new name."""
        request = SnapshotRequest(kind, savepoint, drains, uuid.uuid4().hex)
        return cls(request, cancels, successor)

    @property
    def what(self) -> str:
        if self.successor is not None:
            return "checkpoint to rescale from"
        return "checkpoint" if self.request.kind is BarrierKind.CHECKPOINT else "savepoint"

    def refuse(self, reason: str) -> None:
        self.answer.set_exception(SavepointFailed(self.what, reason))


class SnapshotOrders:
    """Orders without an answer so far; used by the job master's thread."""

    def __init__(self) -> None:
        self._by_request: dict[str, SnapshotOrder] = {}
        self._requests: dict[CheckpointId, str] = {}

    def add(self, order: SnapshotOrder) -> None:
        self._by_request[order.request.name] = order

    def begun(self, request: str, checkpoint_id: CheckpointId) -> None:
        """The checkpoint requested under this name has an id."""
        if request in self._by_request:
            self._requests[checkpoint_id] = request
            self._by_request[request].begun.set_result(checkpoint_id)

    def taken(self, checkpoint_id: CheckpointId) -> SnapshotOrder | None:
        """Remove and return the order behind a checkpoint; None if it was a periodic one."""
        return self._by_request.pop(self._requests.pop(checkpoint_id, ""), None)

    def not_taken(self, checkpoint_id: CheckpointId, reason: str) -> None:
        self.refuse(self._requests.pop(checkpoint_id, ""), reason)

    def refuse(self, request: str, reason: str) -> None:
        order = self._by_request.pop(request, None)
        if order is not None:
            order.refuse(reason)

    def refuse_all(self, reason: str) -> None:
        for request in list(self._by_request):
            self.refuse(request, reason)
