"""The store of a job's checkpoints on a thread of its own: nothing there holds up the job."""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from tidegate.checkpoint.checkpoint import Checkpoint
from tidegate.checkpoint.memory_store import MemoryCheckpointStore
from tidegate.checkpoint.savepoints import dispose, publish_savepoint, remove_savepoint
from tidegate.checkpoint.store import CheckpointStore
from tidegate.core.errors import DirectoryTaken, InternalError, StorageError, TidegateError
from tidegate.core.ids import CheckpointId
from tidegate.protocol.checkpoints.instructions import (
    Abandon,
    Discard,
    Dispose,
    Publish,
    Trigger,
)
from tidegate.stream.elements import SavepointTarget

_log = logging.getLogger("tidegate.checkpoint")
_READ_BACK_SECONDS = 1.0
"""Pause before it is asked again whether a publication of unknown result has happened."""

_HURRIED_SECONDS = 3.0
"""How long something may take that is being done when the job has to end."""


@dataclass(frozen=True, slots=True)
class CheckpointBegun:
    """The store is ready for a checkpoint, or not."""

    trigger: Trigger
    error: TidegateError | None = None


@dataclass(frozen=True, slots=True)
class PublicationSettled:
    """It is certain whether a checkpoint is durable."""

    checkpoint: Checkpoint
    error: TidegateError | None = None
    """Why it is not."""
    seconds: float = 0.0


CheckpointEvent = CheckpointBegun | PublicationSettled
StoreOrder = Trigger | Publish | Discard | Dispose | Abandon
"""What the coordinator wants done in the store; the first two are answered by an event."""


class StoreThread:
    """Does one thing after the other, in the order in which they were asked for."""

    def __init__(self, store: CheckpointStore | MemoryCheckpointStore, patience: float) -> None:
        self._store = store
        self._patience = patience
        """Seconds after which `close` waits no longer for something that is being done."""
        self._busy_since = 0.0
        self._post: Callable[[CheckpointEvent], None] = lambda event: None
        self._orders: queue.SimpleQueue[StoreOrder | Callable[[], object] | None]
        self._orders = queue.SimpleQueue()
        self._is_hurried = threading.Event()
        self._given_up: dict[CheckpointId, SavepointTarget] = {}
        """Savepoints that were deleted while subtasks may still have written to them."""
        self._thread = threading.Thread(
            target=self._run, name="tidegate-checkpoint-store", daemon=True
        )

    def start(self, post: Callable[[CheckpointEvent], None]) -> None:
        """Begin to work; results are posted."""
        self._post = post
        self._busy_since = time.monotonic()
        self._thread.start()

    def carry_out(self, order: StoreOrder) -> None:
        """Do this when everything before it is done."""
        self._orders.put(order)

    def remove(self, checkpoints: Iterable[CheckpointId]) -> None:
        """Delete these checkpoints, and the directory with them, unless a newer driver has it."""
        for checkpoint_id in checkpoints:
            self._orders.put(Discard(checkpoint_id))
        self._orders.put(self._store.remove_if_empty)

    def hurry(self) -> None:
        """What is not known to be published by now is taken for not; nobody waits for long."""
        self._patience = min(self._patience, _HURRIED_SECONDS)
        self._is_hurried.set()

    def close(self) -> None:
        """Wait until everything is done that was asked for, unless the storage hangs."""
        self._is_hurried.set()
        self._orders.put(self._remove_again)
        self._orders.put(None)
        while self._thread.is_alive():
            left = self._busy_since + self._patience - time.monotonic()
            if left <= 0:
                _log.error("the storage of the checkpoints does not answer: nobody waits for it")
                return
            self._thread.join(left)

    def _run(self) -> None:
        while (order := self._orders.get()) is not None:
            self._busy_since = time.monotonic()
            try:
                self._do(order)
            except StorageError as error:
                # What could not be deleted stays until the next start.
                _log.warning("%s", error)
            except Exception:
                _log.exception("something went wrong with the store of the checkpoints")

    def _do(self, order: StoreOrder | Callable[[], object]) -> None:
        match order:
            case Trigger():
                self._begin(order)
            case Publish(checkpoint, barrier):
                self._publish(checkpoint, barrier.savepoint)
            case Discard(number):
                self._store.discard(number)
            case Dispose(claimed):
                if claimed.url is not None and self._store.still_owned():
                    dispose(claimed.url)
            case Abandon(number, _, is_whole, SavepointTarget() as target):
                if is_whole:
                    self._given_up[number] = target
                    remove_savepoint(target)
            case Abandon(number, snapshots, is_whole):
                self._store.abandon(number, snapshots, is_whole=is_whole)
            case _:
                order()

    def _begin(self, trigger: Trigger) -> None:
        error: TidegateError | None = None
        try:
            self._store.begin(trigger.barrier.checkpoint_id, trigger.barrier.base)
        except Exception as failure:
            error = _as_ours(failure)
        self._post(CheckpointBegun(trigger, error))

    def _publish(self, checkpoint: Checkpoint, target: SavepointTarget | None) -> None:
        started = time.monotonic()
        error: TidegateError | None = None
        try:
            if target is None:
                self._store.publish(checkpoint.metadata)
            else:
                publish_savepoint(target, checkpoint.metadata)
                self._store.check_owned()
        except StorageError as failure:
            number = checkpoint.checkpoint_id
            error = failure if target is not None else self._read_back(number, failure)
        except Exception as failure:
            error = _as_ours(failure)
        if error is None:
            self._remove_again(checkpoint.checkpoint_id)
        seconds = time.monotonic() - started
        self._post(PublicationSettled(checkpoint, error, seconds))

    def _remove_again(self, before: CheckpointId | None = None) -> None:
        """Subtasks that have written a later checkpoint, or have ended, write to none before it."""
        for number in [n for n in self._given_up if before is None or n < before]:
            try:
                remove_savepoint(self._given_up.pop(number))
            except StorageError as error:
                _log.warning("%s", error)

    def _read_back(self, number: CheckpointId, failure: StorageError) -> TidegateError | None:
        """Why a checkpoint is not published; nothing may be decided before this is known."""
        while True:
            try:
                if not self._store.is_published(number):
                    return failure
                self._store.check_owned()
                return None
            except DirectoryTaken as taken:
                return taken
            except StorageError as error:
                _log.warning("cannot see whether checkpoint %d is there: %s", number, error)
                if self._is_hurried.wait(_READ_BACK_SECONDS):
                    return failure


def _as_ours(error: Exception) -> TidegateError:
    if isinstance(error, TidegateError):
        return error
    _log.error("something went wrong with the store of the checkpoints", exc_info=error)
    return InternalError(f"{type(error).__name__}: {error}")
