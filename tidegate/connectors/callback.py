"""A source for pushed records: from subscriptions, web hooks, or clients with callbacks."""

from __future__ import annotations

import math
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final

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
from tidegate.core.errors import NotAccepted
from tidegate.stream.batch import Batch, timestamps_of
from tidegate.types.typeinfo import TypeInformation

_QUEUED_RECORDS: Final = 10_000
_THE_ONLY_SPLIT: Final = "subscription"


class CallbackSource(Source):
    """The records passed to `emit` after `subscribe(emit)` was called in a slot.

    `subscribe` runs on its own thread. It may register `emit` somewhere and return, or call it in a
    loop. If it returns a function, that function is called when the job stops listening.
    """

    boundedness = Boundedness.CONTINUOUS_UNBOUNDED

    def __init__(
        self, subscribe: Callable[[Emit], Any], type_info: TypeInformation | None = None
    ) -> None:
        self._subscribe = subscribe
        self._type_info = type_info

    def create_enumerator(self) -> SplitEnumerator:
        return KnownSplits(lambda parallelism: [_THE_ONLY_SPLIT])

    def create_reader(self, context: ReaderContext) -> SourceReader:
        return _CallbackReader(self._subscribe, context)

    def produced_type(self) -> TypeInformation | None:
        return self._type_info

    def replay(self) -> Replay:
        return Replay(False, "cannot get pushed records again: wrap it in durable()")

    def max_readers(self) -> int:
        return 1


class _Pushed:
    """A waiting record, and the event its caller waits for."""

    __slots__ = ("is_settled", "is_taken", "record", "timestamp")

    def __init__(self, record: Any, timestamp: int | None) -> None:
        self.record = record
        self.timestamp = timestamp
        self.is_settled = False
        self.is_taken = False


class Emit:
    """Accepts records from any thread."""

    def __init__(self, *, waits_for_log: bool, wake: Callable[[], None] = lambda: None) -> None:
        self._waits_for_log = waits_for_log
        self._wake = wake
        self._changed = threading.Condition()
        self._waiting: deque[_Pushed] = deque()
        self._in_hand: list[_Pushed] = []
        self._is_closed = False
        self.is_ended = False

    def __call__(self, record: Any, timestamp: int | None = None) -> None:
        """Emit a record; returns when the job has taken it or, with `durable()`, logged it.

        Raises:
            NotAccepted: the job does not listen; whether it will process the record is unknown.
        """
        pushed = _Pushed(record, timestamp)
        with self._changed:
            self._changed.wait_for(lambda: self._is_closed or self.waiting < _QUEUED_RECORDS)
            if self._is_closed or self.is_ended:
                raise NotAccepted("the job does not take records now: send it again later")
            self._waiting.append(pushed)
            self._wake()
            if not self._waits_for_log:
                return
            self._changed.wait_for(lambda: pushed.is_settled)
            if not pushed.is_taken:
                raise NotAccepted("the job stopped before the record was in its log")

    @property
    def waiting(self) -> int:
        """The number of records that have not been taken yet."""
        return len(self._waiting)

    def end(self) -> None:
        """Signal the end of the input."""
        with self._changed:
            self.is_ended = True
        self._wake()

    def take(self, max_records: int) -> list[_Pushed]:
        with self._changed:
            count = min(max_records, len(self._waiting))
            taken = [self._waiting.popleft() for _ in range(count)]
            if self._waits_for_log:
                self._in_hand += taken
            self._changed.notify_all()
        return taken

    def settle(self, *, is_taken: bool) -> None:
        """Release the callers of all taken records: these are logged, or their fate is unknown."""
        with self._changed:
            for pushed in self._in_hand:
                pushed.is_settled, pushed.is_taken = True, is_taken
            self._in_hand.clear()
            self._changed.notify_all()

    def close(self) -> None:
        with self._changed:
            self._is_closed = True
            self._in_hand += self._waiting
            self._waiting.clear()
        self.settle(is_taken=False)


class _CallbackReader(SourceReader):
    def __init__(self, subscribe: Callable[[Emit], Any], context: ReaderContext) -> None:
        self._subscribe = subscribe
        self._context = context
        self._emit = Emit(waits_for_log=context.is_logged, wake=context.wake)
        self._has_split = False
        self._no_more = False
        self._failure: BaseException | None = None
        self._unsubscribe: Any = None

    def add_splits(self, splits: Sequence[str]) -> None:
        if splits and not self._has_split:
            self._has_split = True
            name = f"subscription of {self._context.operator_name}"
            threading.Thread(target=self._run, name=name, daemon=True).start()

    def _run(self) -> None:
        try:
            self._unsubscribe = self._subscribe(self._emit)
        except NotAccepted:
            pass  # it was still emitting when the reader was closed
        except BaseException as error:
            self._failure = error
            self._context.wake()

    def no_more_splits(self) -> None:
        self._no_more = True

    def poll(self, max_records: int) -> Poll:
        is_ended = self._emit.is_ended
        taken = self._emit.take(max_records)
        if taken:
            more = self._emit.waiting > 0
            status = InputStatus.MORE_AVAILABLE if more else InputStatus.NOTHING_AVAILABLE
            return Poll(self._batch(taken), status)
        if self._failure is not None:
            raise self._failure
        is_over = is_ended or (not self._has_split and self._no_more)
        return Poll(None, InputStatus.END_OF_INPUT if is_over else InputStatus.NOTHING_AVAILABLE)

    def _batch(self, taken: list[_Pushed]) -> Batch:
        records = [pushed.record for pushed in taken]
        timestamps = timestamps_of([pushed.timestamp for pushed in taken])
        return Batch(records=records, format=self._context.format, timestamps=timestamps)

    def is_available(self) -> bool:
        if not self._has_split:
            return self._no_more
        return self._emit.waiting > 0 or self._emit.is_ended or self._failure is not None

    def available_in(self) -> float:
        return math.inf

    def snapshot(self) -> list[str]:
        is_over = self._emit.is_ended and not self._emit.waiting
        return [_THE_ONLY_SPLIT] if self._has_split and not is_over else []

    def notify_logged(self) -> None:
        self._emit.settle(is_taken=True)

    def close(self) -> None:
        self._emit.close()
        if callable(self._unsubscribe):
            self._unsubscribe()
