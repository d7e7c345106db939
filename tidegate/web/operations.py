"""Operations that take longer than a request, queried later by their trigger id."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from tidegate.checkpoint.checkpoint import NOT_ADDRESSABLE
from tidegate.checkpoint.statistics import CheckpointHistory
from tidegate.core.ids import CheckpointId
from tidegate.driver.checkpoints.snapshot_orders import SnapshotOrder
from tidegate.web.documents.orders import (
    CheckpointOutcome,
    CheckpointTriggerStatus,
    FailureCause,
    OperationState,
    PlainOutcome,
    PlainStatus,
    SavepointOutcome,
    SavepointStatus,
    SnapshotProgress,
    StartOutcome,
    StartStatus,
)
from tidegate.web.forms import Form, as_document
from tidegate.web.requests import Refusal

_MOST = 1000
_MOST_UNDER_WAY = 100
_KEPT_SECONDS = 300.0
"""How long an outcome can be queried, as in Flink."""


class OperationKind(Enum):
    """The kind of an operation, which has its own path."""

    SAVEPOINT = "savepoint"
    CHECKPOINT = "checkpoint"
    DISPOSAL = "disposal"
    RESCALING = "rescaling"
    START = "start"


@dataclass(slots=True)
class Operation:
    """An operation, with the future of its outcome."""

    kind: OperationKind
    result: Future[Any]
    order: SnapshotOrder | None = None
    history: CheckpointHistory | None = None
    """Where its progress is recorded."""
    begun: float = field(default_factory=time.monotonic)
    begun_at: float = field(default_factory=time.time)
    is_told: bool = False
    """Whether its outcome was reported."""

    def status(self) -> Form:
        """The current status, in the form of its kind."""
        form, outcome = _FORMS[self.kind]
        if not self.result.done():
            state = OperationState(id="IN_PROGRESS")
            return form(status=state, progress=self.progress())
        state = OperationState(id="COMPLETED")
        failure = self.result.exception()
        if failure is None:
            return form(status=state, operation=outcome(**self._outcome()))
        cause = FailureCause(
            class_=f"{type(failure).__module__}.{type(failure).__name__}",
            stack_trace=str(failure),
        )
        return form(status=state, operation=outcome(failure_cause=cause))

    @property
    def checkpoint_id(self) -> CheckpointId | None:
        if self.order is None or not self.order.begun.done():
            return None
        return self.order.begun.result()

    def progress(self) -> SnapshotProgress | None:
        number = self.checkpoint_id
        if number is None or self.history is None:
            return None
        record = self.history.record(number)
        if record is None:
            return None
        return SnapshotProgress(
            checkpoint_id=number, acknowledged=len(record.subtasks), subtasks=record.awaited
        )

    def _outcome(self) -> dict[str, Any]:
        match self.kind:
            case OperationKind.CHECKPOINT:
                path = self.result.result()
                return {
                    "checkpoint_id": self.checkpoint_id,
                    "external_path": None if path == NOT_ADDRESSABLE else path,
                }
            case OperationKind.START:
                return dict(self.result.result())
            case OperationKind.SAVEPOINT:
                return {"location": self.result.result()}
            case _:
                return {}


_FORMS: dict[OperationKind, tuple[Callable[..., Form], Callable[..., Form]]] = {
    OperationKind.SAVEPOINT: (SavepointStatus, SavepointOutcome),
    OperationKind.CHECKPOINT: (CheckpointTriggerStatus, CheckpointOutcome),
    OperationKind.DISPOSAL: (PlainStatus, PlainOutcome),
    OperationKind.RESCALING: (PlainStatus, PlainOutcome),
    OperationKind.START: (StartStatus, StartOutcome),
}


class Operations:
    """The operations of one server; used by the thread of its requests."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, OperationKind, str], Operation] = {}

    def begin(
        self,
        scope: str,
        kind: OperationKind,
        trigger_id: str | None,
        start: Callable[[], Operation],
    ) -> str:
        """Begin an operation unless it was requested under this id; returns the id.

        Raises:
            Refusal: too many are in progress.
        """
        chosen = trigger_id or secrets.token_hex(16)
        if (scope, kind, chosen) in self._known:
            return chosen
        self._make_room()
        self._known[scope, kind, chosen] = start()
        return chosen

    def get(self, scope: str, kind: OperationKind, trigger_id: str) -> Operation:
        """Look up an operation.

        Raises:
            Refusal: it does not exist.
        """
        found = self._known.get((scope, kind, trigger_id))
        if found is None:
            raise Refusal(
                404,
                f"no {kind.value} was requested under the trigger id {trigger_id}, or it was more "
                f"than {_KEPT_SECONDS:.0f} s ago",
            )
        if found.result.done():
            found.is_told = True
        return found

    def under_way(self, scope: str) -> dict[str, Operation]:
        """Operations in progress, by trigger id."""
        return {
            trigger_id: each
            for (of, _, trigger_id), each in self._known.items()
            if of == scope and not each.result.done()
        }

    def outcomes(self, scope: str) -> dict[str, Any]:
        """The outcomes of ended operations, by trigger id."""
        return {
            trigger_id: as_document(each.status())
            for (of, _, trigger_id), each in self._known.copy().items()
            if of == scope and each.result.done()
        }

    def are_told(self) -> bool:
        """Whether all outcomes were reported."""
        return all(each.is_told or not each.result.done() for each in self._known.copy().values())

    def _make_room(self) -> None:
        now = time.monotonic()
        for key, each in list(self._known.items()):
            if each.result.done() and now > each.begun + _KEPT_SECONDS:
                del self._known[key]
        under_way = sum(not each.result.done() for each in self._known.values())
        if under_way >= _MOST_UNDER_WAY:
            raise Refusal(
                429, f"{under_way} operations are in progress; wait for them", {"retry-after": "5"}
            )
        while len(self._known) >= _MOST:
            oldest = next(key for key, each in self._known.items() if each.result.done())
            del self._known[oldest]
