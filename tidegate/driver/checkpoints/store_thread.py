"""The checkpoint store on its own thread, so that slow storage does not delay the job."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import assert_never

from tidegate.checkpoint.checkpoint import Checkpoint
from tidegate.checkpoint.memory_store import MemoryCheckpointStore
from tidegate.checkpoint.savepoints import dispose, publish_savepoint, remove_savepoint
from tidegate.checkpoint.store import CheckpointStore
from tidegate.core.errors import InternalError, StorageError, TidegateError
from tidegate.core.ids import CheckpointId
from tidegate.core.workers import Action, Worker, Workers
from tidegate.protocol.checkpoints.instructions import (
    Abandon,
    Discard,
    Dispose,
    Publish,
    TriggerCheckpoint,
)
from tidegate.stream.elements import BarrierKind, SavepointTarget

_log = logging.getLogger("tidegate.checkpoint")
_READ_BACK_SECONDS = 1.0
"""Pause before checking again whether a publication with unknown outcome succeeded."""

_HURRIED_SECONDS = 3.0
"""How long a running operation may take when the job must end."""


@dataclass(frozen=True, slots=True)
class CheckpointBegun:
    """The store is ready for a checkpoint, or failed to prepare for it."""

    trigger: TriggerCheckpoint
    error: TidegateError | None = None


@dataclass(frozen=True, slots=True)
class PublicationSettled:
    """It is certain whether a checkpoint is durable."""

    checkpoint: Checkpoint
    error: TidegateError | None = None
    """Why it is not durable."""
    seconds: float = 0.0


CheckpointEvent = CheckpointBegun | PublicationSettled
StoreOrder = TriggerCheckpoint | Publish | Discard | Dispose | Abandon
"""What the coordinator orders from the store; the first two are answered by an event."""


class StoreThread:
    """Carries out orders one at a time, in sequence."""

    def __init__(self, store: CheckpointStore | MemoryCheckpointStore, patience: float) -> None:
        self._store = store
        self._patience = patience
        """How many seconds `close` waits for a running operation."""
        self._busy_since: float | None = None
        """When the running operation began; None: the thread is idle."""
        self._post: Callable[[CheckpointEvent], None] = lambda event: None
        self._is_hurried = False
        self._publishing: tuple[float, StorageError] | None = None
        """When a publication with unknown outcome began, and its error."""
        self._given_up: dict[CheckpointId, SavepointTarget | None] = {}
        """Checkpoints deleted while subtasks may still write to them, with savepoint targets."""
        self._worker: Worker

    def start(self, post: Callable[[CheckpointEvent], None], workers: Workers) -> None:
        """Start the thread; outcomes are posted."""
        self._post = post
        self._worker = workers.start("tidegate-checkpoint-store")

    def carry_out(self, order: StoreOrder) -> None:
        """Carry out an order after all earlier ones."""
        self._do(partial(self._carry_out, order))

    def remove(self, checkpoints: Iterable[CheckpointId]) -> None:
        """Delete these checkpoints and the directory, unless a newer driver owns it."""
        self._do(self._store.end)
        for checkpoint_id in checkpoints:
            self.carry_out(Discard(checkpoint_id))
        self._do(self._remove_again)
        self._do(self._store.remove_if_empty)

    def hurry(self) -> None:
        """Count publications with an unknown outcome as failed, so that nothing waits for long."""
        self._patience = min(self._patience, _HURRIED_SECONDS)
        self._is_hurried = True
        self._worker.hurry()

    def close(self) -> None:
        """Wait until all orders are carried out, unless the storage hangs."""
        self._is_hurried = True
        self._worker.hurry()
        self._do(self._remove_again)
        while (left := self._patience - self._busy_seconds) > 0:
            if self._worker.stop(left):
                return
        _log.error("the checkpoint storage does not respond: the job no longer waits for it")

    @property
    def _busy_seconds(self) -> float:
        """How long the current operation has been running."""
        since = self._busy_since
        return 0.0 if since is None else time.monotonic() - since

    def _do(self, action: Action) -> None:
        self._worker.post(partial(self._run, action))

    def _run(self, action: Action) -> float | None:
        self._busy_since = time.monotonic()
        try:
            return action()
        except StorageError as error:
            # The next start removes what could not be deleted.
            _log.warning("%s", error)
        except Exception:
            _log.exception("unexpected failure of the checkpoint store")
        finally:
            self._busy_since = None
        return None

    def _carry_out(self, order: StoreOrder) -> float | None:
        match order:
            case TriggerCheckpoint():
                self._begin(order)
            case Publish(checkpoint, barrier):
                return self._publish(checkpoint, barrier.savepoint)
            case Discard(number):
                self._store.discard(number)
            case Dispose(claimed):
                if claimed.url is not None and self._store.still_owned():
                    dispose(claimed.url)
            case Abandon(number, snapshots, is_whole, target):
                if is_whole:
                    self._given_up[number] = target
                if target is None:
                    self._store.abandon(number, snapshots, is_whole=is_whole)
                elif is_whole:
                    self._remove_savepoint(number, target)
            case _:
                assert_never(order)
        return None

    def _remove_savepoint(self, number: CheckpointId, target: SavepointTarget) -> None:
        self._store.do_not_stop(number)
        remove_savepoint(target)

    def _begin(self, trigger: TriggerCheckpoint) -> None:
        error: TidegateError | None = None
        try:
            self._store.begin(trigger.barrier.checkpoint_id, trigger.barrier.base)
        except Exception as failure:
            error = _as_ours(failure)
        self._post(CheckpointBegun(trigger, error))

    def _publish(self, checkpoint: Checkpoint, target: SavepointTarget | None) -> float | None:
        """Publish a checkpoint; called again until the outcome is known."""
        error: TidegateError | None = None
        started, unknown = self._publishing or (time.monotonic(), None)
        try:
            if target is not None:
                path = publish_savepoint(target, checkpoint.metadata)
                if checkpoint.metadata.kind is BarrierKind.STOP:
                    self._store.stop(checkpoint.checkpoint_id, path)
                self._store.check_owned()
            elif unknown is None:
                self._store.publish(checkpoint.metadata)
            elif self._store.is_published(checkpoint.checkpoint_id):
                self._store.check_owned()
            else:
                self._store.rule_out(checkpoint.checkpoint_id)
                error = unknown
        except StorageError as failure:
            if target is None and unknown is None:
                self._publishing = started, failure
                return 0.0
            if target is None and not self._is_hurried:
                number = checkpoint.checkpoint_id
                _log.warning("cannot determine whether checkpoint %d exists: %s", number, failure)
                return _READ_BACK_SECONDS
            error = unknown or failure
        except Exception as failure:
            error = _as_ours(failure)
        self._publishing = None
        if error is None:
            self._remove_again(checkpoint.checkpoint_id)
        self._post(PublicationSettled(checkpoint, error, time.monotonic() - started))
        return None

    def _remove_again(self, before: CheckpointId | None = None) -> None:
        """Delete aborted checkpoints again: their subtasks have ended or written a later one."""
        for number in [n for n in self._given_up if before is None or n < before]:
            target = self._given_up.pop(number)
            try:
                if target is None:
                    self._store.abandon(number, ())
                else:
                    self._remove_savepoint(number, target)
            except StorageError as error:
                _log.warning("%s", error)


def _as_ours(error: Exception) -> TidegateError:
    if isinstance(error, TidegateError):
        return error
    _log.error("unexpected failure of the checkpoint store", exc_info=error)
    return InternalError(f"{type(error).__name__}: {error}")
