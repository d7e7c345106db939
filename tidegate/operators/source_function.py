"""SourceFunctions as sources: a loop on its own thread fills a queue that the reader empties."""

from __future__ import annotations

import threading
from abc import abstractmethod
from collections import deque
from collections.abc import Sequence
from typing import Any

import numpy as np

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
from tidegate.core.errors import InternalError
from tidegate.operators.base import OperatorContext
from tidegate.operators.functions import SourceFunction
from tidegate.operators.runtime_context import RuntimeContext
from tidegate.operators.user_code import USER_FAILURES, UserCode
from tidegate.stream.batch import Batch

_QUEUED_RECORDS = 10_000
_JOIN_SECONDS = 10.0


class FunctionSource(Source):
    """A source whose reader runs a function of the user and so needs the operator's context."""

    @abstractmethod
    def create_function_reader(
        self, context: ReaderContext, operator: OperatorContext
    ) -> SourceReader:
        """A new reader, in a slot."""

    def create_reader(self, context: ReaderContext) -> SourceReader:
        raise InternalError(f"{type(self).__name__} needs create_function_reader()")


class SourceFunctionSource(FunctionSource):
    """One reader that runs the function; there is nothing to seek, so a restart runs it anew."""

    boundedness = Boundedness.CONTINUOUS_UNBOUNDED

    def __init__(self, function: SourceFunction) -> None:
        if not isinstance(function, SourceFunction):
            raise TypeError(f"expected a SourceFunction, got {function!r}")
        self.function = function

    def create_enumerator(self) -> SplitEnumerator:
        return KnownSplits(lambda parallelism: ["run"])

    def create_function_reader(
        self, context: ReaderContext, operator: OperatorContext
    ) -> SourceReader:
        return SourceFunctionReader(self.function, context, operator)

    def max_readers(self) -> int | None:
        return 1


class _Canceled(BaseException):
    """Leaves `run` at its next `collect` once the reader is closed."""


class _Mailing(SourceFunction.SourceContext):
    """Records on their way from the thread of the function to the reader, at most so many."""

    def __init__(self) -> None:
        self._items: deque[tuple[Any, int | None]] = deque()
        self._has_room = threading.Condition()
        self._canceled = False

    def __len__(self) -> int:
        return len(self._items)

    def collect(self, value: Any) -> None:
        self._put((value, None))

    def collect_with_timestamp(self, value: Any, timestamp: int) -> None:
        self._put((value, timestamp))

    def _put(self, item: tuple[Any, int | None]) -> None:
        if len(self._items) >= _QUEUED_RECORDS:
            with self._has_room:
                self._has_room.wait_for(
                    lambda: self._canceled or len(self._items) < _QUEUED_RECORDS
                )
        if self._canceled:
            raise _Canceled
        self._items.append(item)

    def take(self, max_records: int) -> list[tuple[Any, int | None]]:
        """Up to so many records; only the reader takes."""
        pop = self._items.popleft
        taken = [pop() for _ in range(min(max_records, len(self._items)))]
        with self._has_room:
            self._has_room.notify()
        return taken

    def cancel(self) -> None:
        with self._has_room:
            self._canceled = True
            self._has_room.notify()


class SourceFunctionReader(SourceReader):
    """Runs the function once its only split is there."""

    def __init__(
        self, function: SourceFunction, context: ReaderContext, operator: OperatorContext
    ) -> None:
        self._function = function
        self._context = context
        self._operator = operator
        self._user_code = UserCode(operator)
        self._mailing = _Mailing()
        self._thread: threading.Thread | None = None
        self._splits: list[Any] = []
        self._ended = threading.Event()
        self._failure: BaseException | None = None
        self._no_more = False
        self._opened = False

    def open(self) -> None:
        with self._user_code.guard():
            self._function.open(RuntimeContext(self._operator))
        self._opened = True

    def add_splits(self, splits: Sequence[Any]) -> None:
        self._splits.extend(splits)
        if self._splits and self._thread is None:
            self._thread = threading.Thread(
                target=self._run, name=f"source {self._context.operator_name}", daemon=True
            )
            self._thread.start()

    def no_more_splits(self) -> None:
        self._no_more = True

    def _run(self) -> None:
        try:
            self._function.run(self._mailing)
        except _Canceled:
            pass
        except USER_FAILURES as error:
            self._failure = error
        finally:
            self._ended.set()

    def poll(self, max_records: int) -> Poll:
        ended = self._ended.is_set() or (self._thread is None and self._no_more)
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

    def _batch(self, items: list[tuple[Any, int | None]]) -> Batch:
        values = [value for value, _ in items]
        stamps = [stamp for _, stamp in items if stamp is not None]
        timestamps = np.array(stamps, dtype=np.int64) if len(stamps) == len(items) else None
        return Batch(records=values, format=self._context.format, timestamps=timestamps)

    def is_available(self) -> bool:
        if self._thread is None:
            return self._no_more
        return len(self._mailing) > 0 or self._ended.is_set()

    def snapshot(self) -> list[Any]:
        return [] if self._ended.is_set() and not len(self._mailing) else list(self._splits)

    def close(self) -> None:
        self._mailing.cancel()
        with self._user_code.guard():
            if self._thread is not None:
                if not self._ended.is_set():
                    self._function.cancel()
                self._thread.join(_JOIN_SECONDS)
            if self._opened:
                self._function.close()
