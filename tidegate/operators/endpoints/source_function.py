"""SourceFunctions as sources: a loop on its own thread fills a queue that the reader empties.

The function is ahead of what was delivered. A snapshot therefore includes the records in the queue
besides the function's state, both taken under the checkpoint lock. After a restore, these records
are delivered first, then the function runs from its state, so that no record is lost or repeated.
"""

from __future__ import annotations

import math
import threading
from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from tidegate.connectors.durable.source import DurableReader, DurableSource
from tidegate.connectors.guarantee import Replay
from tidegate.connectors.source import (
    Boundedness,
    InputStatus,
    Poll,
    ReaderContext,
    Source,
    SourceReader,
    SplitEnumerator,
)
from tidegate.connectors.splits import KnownSplits
from tidegate.core.errors import GraphError, InternalError
from tidegate.core.ids import CheckpointId
from tidegate.operators.base import OperatorContext
from tidegate.operators.checkpointed import (
    CheckpointedFunction,
    CheckpointListener,
    FunctionInitializationContext,
    FunctionSnapshotContext,
)
from tidegate.operators.endpoints.checkpoint_lock import CheckpointLock
from tidegate.operators.functions import SourceFunction
from tidegate.operators.runtime_context import RuntimeContext
from tidegate.operators.user_code import USER_FAILURES, UserCode
from tidegate.state.operator_state import OperatorStateStore
from tidegate.stream.batch import Batch, timestamps_of
from tidegate.stream.elements import Barrier
from tidegate.types.privacy import for_arguments

_QUEUED_RECORDS = 10_000
_JOIN_SECONDS = 10.0


_Emitted = tuple[Any, int | None]
"""A record and its timestamp."""


@dataclass(frozen=True, slots=True)
class FunctionRun:
    """The only split: the run of the function, and its emitted but undelivered records."""

    queued: tuple[_Emitted, ...] = ()
    is_over: bool = False
    """Whether the function has returned, so that only the queue is left."""


class FunctionReader(SourceReader):
    """A reader that runs a function of the user, which takes part in checkpoints."""

    @abstractmethod
    def snapshot_at(self, barrier: Barrier) -> list[Any]:
        """The snapshot of the reader; called instead of `snapshot`."""


class FunctionSource(Source):
    """A source whose reader runs a function of the user and needs the operator's context."""

    @abstractmethod
    def create_function_reader(
        self, context: ReaderContext, operator: OperatorContext
    ) -> SourceReader:
        """Create a reader, in a slot."""

    def create_reader(self, context: ReaderContext) -> SourceReader:
        raise InternalError(f"{type(self).__name__} needs create_function_reader()")


class SourceFunctionSource(FunctionSource):
    """Runs the function in one reader.

    It has no position: a restart runs the function again, unless it is a CheckpointedFunction.
    """

    boundedness = Boundedness.CONTINUOUS_UNBOUNDED

    def __init__(self, function: SourceFunction) -> None:
        if not isinstance(function, SourceFunction):
            raise TypeError(f"expected a SourceFunction, got {function!r}")
        self.function = function

    def create_enumerator(self) -> SplitEnumerator:
        return KnownSplits(lambda parallelism: [FunctionRun()])

    def create_function_reader(
        self, context: ReaderContext, operator: OperatorContext
    ) -> FunctionReader:
        return SourceFunctionReader(self.function, context, operator)

    def replay(self) -> Replay:
        if isinstance(self.function, CheckpointedFunction):
            return Replay(True, "restores the state of its function")
        return Replay(False, "runs its function again, without state: wrap it in durable()")

    def max_readers(self) -> int | None:
        return 1

    def durable(self) -> Source:
        if isinstance(self.function, CheckpointedFunction):
            raise GraphError(
                f"durable() is for sources that cannot replay, but {type(self.function).__name__} "
                "is a CheckpointedFunction that restores its state: use it without durable()"
            )
        return DurableFunctionSource(self)


class DurableFunctionSource(DurableSource, FunctionSource):
    """A run of a function, with a log of what it emits."""

    source: FunctionSource

    def create_function_reader(
        self, context: ReaderContext, operator: OperatorContext
    ) -> SourceReader:
        return DurableReader(
            lambda inner: self.source.create_function_reader(inner, operator), context
        )


class _Canceled(BaseException):
    """Leaves `run` at its next `collect` once the reader is closed."""


class _Mailing(SourceFunction.SourceContext):
    """A bounded queue of records from the thread of the function to the reader.

    Under the checkpoint lock, it may exceed its bound while a snapshot waits for the lock: a
    function that waited for room would never release it.
    """

    def __init__(self, private: Callable[[Any], Any], wake: Callable[[], None]) -> None:
        self._private = private
        self._wake = wake
        self._items: deque[_Emitted] = deque()
        self._has_room = threading.Condition()
        self.is_canceled = False
        self.lock = CheckpointLock(self._look_again)

    def __len__(self) -> int:
        return len(self._items)

    def get_checkpoint_lock(self) -> AbstractContextManager[None]:
        return self.lock

    def collect(self, value: Any) -> None:
        value = self._private(value)
        self._put((value, None))

    def collect_with_timestamp(self, value: Any, timestamp: int) -> None:
        value = self._private(value)
        self._put((value, timestamp))

    def _put(self, item: _Emitted) -> None:
        if len(self._items) >= _QUEUED_RECORDS:
            with self._has_room:
                self._has_room.wait_for(self._may_go_on)
        if self.is_canceled:
            raise _Canceled
        self._items.append(item)
        self._wake()

    def _may_go_on(self) -> bool:
        has_room = len(self._items) < _QUEUED_RECORDS
        return self.is_canceled or has_room or self.lock.must_be_released

    def put_first(self, items: Iterable[_Emitted]) -> None:
        """Add records that were emitted before the function runs."""
        self._items.extend(items)

    def waiting(self) -> tuple[_Emitted, ...]:
        """The records not taken yet; call it with the checkpoint lock held."""
        return tuple(self._items)

    def take(self, max_records: int) -> list[_Emitted]:
        """Take up to this many records; only called by the reader."""
        pop = self._items.popleft
        taken = [pop() for _ in range(min(max_records, len(self._items)))]
        self._look_again()
        return taken

    def cancel(self) -> None:
        self.is_canceled = True
        self._look_again()

    def _look_again(self) -> None:
        with self._has_room:
            self._has_room.notify()


class SourceFunctionReader(FunctionReader):
    """Runs the function once it has its only split."""

    def __init__(
        self, function: SourceFunction, context: ReaderContext, operator: OperatorContext
    ) -> None:
        self._function = function
        self._context = context
        self._operator = operator
        self._user_code = UserCode(operator)
        self._mailing = _Mailing(for_arguments(self._user_code.private), context.wake)
        self._thread: threading.Thread | None = None
        self._has_run = False
        """Whether it has the split: only one subtask does."""
        self._states = OperatorStateStore()
        """The function's own states, because it may change them whenever no snapshot holds the
        lock."""
        self._ended = threading.Event()
        self._is_over = False
        """Whether the function has returned by itself: a restart does not run it again."""
        self._failure: BaseException | None = None
        self._no_more = False
        self._opened = False

    def open(self) -> None:
        told = RuntimeContext(self._operator)
        restored = self._context.operator_state
        if restored.is_restored:
            self._states.restore(restored.freeze())
        with self._user_code.guard():
            if isinstance(self._function, CheckpointedFunction):
                found = FunctionInitializationContext(self._states, told)
                self._function.initialize_state(found)
            self._function.open(told)
        self._opened = True

    def add_splits(self, splits: Sequence[FunctionRun]) -> None:
        for split in splits:
            self._has_run = True
            self._mailing.put_first(split.queued)
            if split.is_over:
                self._is_over = True
                self._ended.set()
            else:
                name = f"source {self._context.operator_name}"
                self._thread = threading.Thread(target=self._run, name=name, daemon=True)
                self._thread.start()

    def no_more_splits(self) -> None:
        self._no_more = True

    def _run(self) -> None:
        try:
            self._function.run(self._mailing)
            self._is_over = not self._mailing.is_canceled
        except _Canceled:
            pass
        except USER_FAILURES as error:
            self._failure = error
        finally:
            self._ended.set()
            self._context.wake()

    def poll(self, max_records: int) -> Poll:
        ended = self._ended.is_set() or (not self._has_run and self._no_more)
        items = self._mailing.take(max_records)
        if items:
            more = len(self._mailing) > 0
            status = InputStatus.MORE_AVAILABLE if more else InputStatus.NOTHING_AVAILABLE
            return Poll(self._batch(items), status)
        if not ended:
            return Poll(None, InputStatus.NOTHING_AVAILABLE)
        if self._failure is not None:
            raise self._user_code.failure(self._failure)
        return Poll(None, InputStatus.END_OF_INPUT)

    def _batch(self, items: list[_Emitted]) -> Batch:
        values = [value for value, _ in items]
        timestamps = timestamps_of([stamp for _, stamp in items])
        return Batch(records=values, format=self._context.format, timestamps=timestamps)

    def is_available(self) -> bool:
        if not self._has_run:
            return self._no_more
        return len(self._mailing) > 0 or self._ended.is_set()

    def available_in(self) -> float:
        return math.inf

    def snapshot_at(self, barrier: Barrier) -> list[FunctionRun]:
        if not isinstance(self._function, CheckpointedFunction):
            return self.snapshot()
        with self._mailing.lock.held_by_snapshot():
            is_over = self._is_over
            if self._failure is not None:
                # The function failed in the middle of a change: its state is inconsistent.
                raise self._user_code.failure(self._failure)
            with self._user_code.guard():
                self._function.snapshot_state(FunctionSnapshotContext(barrier))
            self._context.operator_state.restore(self._states.freeze())
            queued = self._mailing.waiting()
        return [FunctionRun(queued, is_over)] if self._has_run and (queued or not is_over) else []

    def snapshot(self) -> list[FunctionRun]:
        is_over = self._is_over and not len(self._mailing)
        return [FunctionRun()] if self._has_run and not is_over else []

    def notify_complete(self, checkpoint_id: CheckpointId, splits: Sequence[Any]) -> None:
        if isinstance(self._function, CheckpointListener):
            with self._user_code.guard():
                self._function.notify_checkpoint_complete(checkpoint_id)

    def notify_aborted(self, checkpoint_id: CheckpointId) -> None:
        if isinstance(self._function, CheckpointListener):
            with self._user_code.guard():
                self._function.notify_checkpoint_aborted(checkpoint_id)

    def close(self) -> None:
        self._mailing.cancel()
        with self._user_code.guard():
            if self._thread is not None:
                if not self._ended.is_set():
                    self._function.cancel()
                self._thread.join(_JOIN_SECONDS)
            if self._opened:
                self._function.close()
