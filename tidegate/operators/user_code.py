"""Calls user code and converts its exceptions."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterable, Iterator
from operator import length_hint
from pathlib import Path
from types import TracebackType
from typing import Any, Final, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

import tidegate
from tidegate.core.errors import (
    ExternalError,
    InternalError,
    StateTypeChanged,
    TidegateError,
    UserError,
    UserFunctionError,
    shorten,
)
from tidegate.core.ids import CheckpointId
from tidegate.operators.base import Operator, OperatorContext, OperatorSnapshot, Output
from tidegate.operators.checkpointed import (
    CheckpointedFunction,
    CheckpointListener,
    FunctionInitializationContext,
    FunctionSnapshotContext,
)
from tidegate.operators.functions import Function
from tidegate.operators.runtime_context import RuntimeContext
from tidegate.stream.batch import Batch
from tidegate.stream.elements import Barrier
from tidegate.types.arrow import ArrowFormat
from tidegate.types.privacy import ATOMIC, HELD_BY_TURN, private, private_copy, shared

USER_FAILURES: Final = (Exception, SystemExit)
"""Exceptions caught from user code: `sys.exit()` in a function does not end the slot."""

Timestamps = npt.NDArray[np.int64]

_OWN_FILES = str(Path(tidegate.__file__).parent)
_NO_RECORD: Final = object()
_STOPPED: Final = "raised by the function"
"""map() would treat a StopIteration of the function as the end of the records."""


def user_traceback(error: BaseException) -> str:
    """The user's traceback: it begins at the first frame outside Tidegate."""
    trace: TracebackType | None = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename.startswith(_OWN_FILES):
        trace = trace.tb_next
    if trace is None:
        return "".join(traceback.format_exception_only(error))
    return "".join(traceback.format_exception(type(error), error, trace))


class Outcome(NamedTuple):
    """Results up to a failure, which is raised after they are emitted."""

    results: list[Any]
    timestamps: Timestamps | None
    failure: TidegateError | None
    is_inert: bool = False
    """See `Batch.is_inert`."""


class TimestampedContext(Protocol):
    """A context with the timestamp of the current record."""

    current: int | None


class UserCode:
    """The user code of one operator of a subtask: reports what failed, where, on which record."""

    def __init__(self, context: OperatorContext, usual: type | None = None) -> None:
        self._name = context.name
        self._uid = context.uid
        self._operator_id = context.operator_id
        self._subtask = f"({context.subtask + 1}/{context.parallelism})"
        self.drops_partial_results = context.poison is not None and context.poison.may_skip
        """Whether results of a record are held back until the function has finished with it,
        because the record may be skipped."""
        self.usual = usual
        """The class of most results, which are immutable: they are emitted without a check."""
        self.private = shared if context.reuses_objects else private
        """Makes a private copy of any other result when it is emitted."""
        self.kept = shared if context.reuses_objects else private_copy
        """The same for a result that is also state."""

    def failure(
        self, error: BaseException, record: object = _NO_RECORD, position: int | None = None
    ) -> TidegateError:
        """The error to raise for an exception of user code; Tidegate's own errors keep their kind.

        `position` is that of the record in its batch, if all before it are processed.
        """
        if isinstance(error, UserFunctionError | ExternalError | InternalError):
            return error
        if isinstance(error, StateTypeChanged) and record is _NO_RECORD:
            return error  # found while opening: no restart could fix it
        failure = self.function_error(error, record)
        if position is not None:
            failure.suspects = range(position, position + 1)
        return failure

    def function_error(
        self, error: BaseException, record: object = _NO_RECORD
    ) -> UserFunctionError:
        """Wrap any exception as a failure of this operator."""
        shown = None if record is _NO_RECORD else shorten(record)
        trace = user_traceback(error)
        failure = UserFunctionError(self._name, self._uid, self._subtask, shown, trace)
        failure.operator_id = self._operator_id
        return failure

    def guard(
        self, record: object = _NO_RECORD, position: int | None = None, *, spares_ours: bool = False
    ) -> _Guard:
        """Wrap exceptions of rare calls; the loops over records catch exceptions themselves.

        With `spares_ours`, Tidegate's own errors are raised as they are.
        """
        return _Guard(self, record, position, spares_ours)

    def failure_of_batch(self, error: BaseException, records: int) -> TidegateError:
        """The failure of one of the first records of a batch, none of which was processed."""
        failure = self.failure(error, f"<a batch of {records} records>")
        if isinstance(failure, UserFunctionError):
            failure.suspects = range(records)
        return failure

    def call_until_failure(
        self, function: Callable[[Any], Any], records: list[Any]
    ) -> tuple[list[Any], TidegateError | None]:
        """What the function returns for each record, for internal use."""
        returned: list[Any] = []
        try:
            returned.extend(map(function, records))
            if len(returned) < len(records):
                raise StopIteration(_STOPPED)
        except USER_FAILURES as error:
            return returned, self.failure(error, records[len(returned)], len(returned))
        return returned, None

    def map_until_failure(
        self,
        function: Callable[[Any], Any],
        records: list[Any],
        timestamps: Timestamps | None = None,
        *,
        is_safe: bool = False,
        turns: Iterator[Any] | None = None,
    ) -> Outcome:
        """One result per record; results are not checked if known to be `is_safe`.

        `turns` yields the records if something must happen before each call of the function.
        """
        if turns is None and (is_safe or self.private is shared):
            (results, failure), is_inert = self.call_until_failure(function, records), is_safe
        elif turns is None:
            results, failure, is_inert = self._map_looking(function, records, 0)
        else:
            results, failure, is_inert = self._map_looking(function, turns, HELD_BY_TURN)
        stamps = None if timestamps is None else timestamps[: len(results)]
        return Outcome(results, stamps, failure, is_inert)

    def _map_looking(
        self, function: Callable[[Any], Any], records: Iterable[Any], held: int
    ) -> tuple[list[Any], TidegateError | None, bool]:
        results: list[Any] = []
        usual, private = self.usual, self.private
        failure = record = None
        is_inert = usual is None or usual in ATOMIC
        try:
            for record in records:
                result = function(record)
                if type(result) is usual or (
                    type(result) is tuple
                    and len(result) == 2
                    and type(result[0]) in ATOMIC
                    and type(result[1]) in ATOMIC
                ):
                    pass
                elif type(result) is tuple:
                    for part in result:
                        if type(part) not in ATOMIC:
                            break
                    else:
                        results.append(result)
                        continue
                    del part  # nobody else may refer to it
                    result, is_inert = private(result, record, held), False
                elif type(result) not in ATOMIC:
                    result, is_inert = private(result, record, held), False
                results.append(result)
        except USER_FAILURES as error:
            failure = self.failure(error, record, len(results))
        self._expect(results)
        return results, failure, is_inert

    def flat_map_until_failure(
        self,
        function: Callable[[Any], Any],
        records: list[Any],
        timestamps: Timestamps | None = None,
    ) -> Outcome:
        """Any number of results per record, including those of the failing record so far."""
        rest = iter(records)
        return self.any_number((function(record) for record in rest), records, rest, timestamps)

    def process_until_failure(
        self,
        function: Callable[[Any, Any], Any],
        records: list[Any],
        context: TimestampedContext,
        timestamps: Timestamps | None = None,
    ) -> Outcome:
        """Like `flat_map_until_failure`, with a context that knows the record's timestamp."""
        rest = iter(records)
        if timestamps is None:
            context.current = None
            calls = (function(record, context) for record in rest)
        else:
            timed = zip(rest, timestamps.tolist(), strict=False)
            calls = (function(record, context) for record, context.current in timed)
        return self.any_number(calls, records, rest, timestamps)

    def any_number(
        self,
        calls: Iterator[Iterable[Any] | None],
        records: list[Any],
        rest: Iterator[Any],
        timestamps: Timestamps | None,
    ) -> Outcome:
        """The results of calls that each take a record from the rest of the records."""
        results: list[Any] = []
        has_ends = timestamps is not None or self.drops_partial_results
        ends: list[int] | None = [] if has_ends else None
        failure, is_inert = None, False
        try:
            is_inert = self.gather(calls, results, ends)
        except USER_FAILURES as error:
            position = position_of_last(records, rest)
            failure = self.failure(error, records[position], position)
            if self.drops_partial_results:
                del results[ends[-1] if ends else 0 :]
        stamps = None if timestamps is None else repeated(timestamps, ends or [], len(results))
        return Outcome(results, stamps, failure, is_inert)

    def gather(
        self,
        calls: Iterator[Iterable[Any] | None],
        results: list[Any],
        ends: list[int] | None,
    ) -> bool:
        """Append the results of the calls, and the number of results after each call.

        Returns whether all results are known to be inert.
        """
        usual, private = self.usual, self.private
        is_inert = usual is None or usual in ATOMIC
        for found in calls:
            if found is not None:
                for result in found:
                    if type(result) is usual or (
                        type(result) is tuple
                        and len(result) == 2
                        and type(result[0]) in ATOMIC
                        and type(result[1]) in ATOMIC
                    ):
                        pass
                    elif type(result) is tuple:
                        for part in result:
                            if type(part) not in ATOMIC:
                                break
                        else:
                            results.append(result)
                            continue
                        del part  # nobody else may refer to it
                        result, is_inert = private(result), False
                    elif type(result) not in ATOMIC:
                        result, is_inert = private(result), False
                    results.append(result)
            if ends is not None:
                ends.append(len(results))
        self._expect(results)
        return is_inert

    def _expect(self, results: list[Any]) -> None:
        """Expect further results to be like the last of these."""
        if results and type(results[-1]) in ATOMIC:
            self.usual = type(results[-1])


class _Guard:
    """See `UserCode.guard`. A class, because a generator would cost several times as much."""

    __slots__ = ("_position", "_record", "_spares_ours", "_user_code")

    def __init__(
        self, user_code: UserCode, record: object, position: int | None, spares_ours: bool
    ) -> None:
        self._user_code = user_code
        self._record = record
        self._position = position
        self._spares_ours = spares_ours

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if not isinstance(error, USER_FAILURES):
            return
        if not (self._spares_ours and isinstance(error, TidegateError)):
            raise self._user_code.failure(error, self._record, self._position) from None


def run_in_pieces(batch: Batch, run: Callable[[Batch], Outcome]) -> Outcome:
    """The outcome of a batch whose records are needed as Python objects, but not all at once."""
    outcomes: list[Outcome] = []
    failure: TidegateError | None = None
    for start, piece in batch.pieces():
        try:
            outcomes.append(run(piece))
            failure = outcomes[-1].failure
        except TidegateError as error:
            failure = error
        if failure is not None:
            if isinstance(failure, UserError) and (suspects := failure.suspects) is not None:
                failure.suspects = range(start + suspects.start, start + suspects.stop)
            break
    if len(outcomes) == 1:
        return outcomes[0]._replace(failure=failure)
    stamps = [found.timestamps for found in outcomes if found.timestamps is not None]
    return Outcome(
        [result for found in outcomes for result in found.results],
        np.concatenate(stamps) if stamps else None,
        failure,
        all(found.is_inert for found in outcomes),
    )


def position_of_last(records: list[Any], rest: Iterator[Any]) -> int:
    """The position of the last record that an iterator over the list returned."""
    return len(records) - length_hint(rest) - 1


def repeated(timestamps: Timestamps, ends: list[int], results: int) -> Timestamps:
    """The record's timestamp for every result; after record i there were `ends[i]` results."""
    bounds = np.array([0, *ends, results], dtype=np.int64)
    counts = (bounds[1:] - bounds[:-1])[: len(timestamps)]
    return np.repeat(timestamps[: len(counts)], counts)


class FunctionOperator(Operator):
    """An operator around one user function, which is opened, checkpointed and closed with it."""

    function: Any
    format: ArrowFormat | None
    user_code: UserCode
    _opened = False

    def __init__(self, function: Any, format: ArrowFormat | None = None) -> None:
        self.function = function
        self.format = format

    def open(self, context: OperatorContext, output: Output) -> None:
        super().open(context, output)
        self.user_code = UserCode(context, self.usual_result())
        told = self.runtime_context(context)
        with self.user_code.guard():
            if isinstance(self.function, CheckpointedFunction):
                found = FunctionInitializationContext(context.operator_state, told)
                self.call(self.function.initialize_state, found)
            if isinstance(self.function, Function):
                self.call(self.function.open, told)
        self._opened = True

    def call(self, function: Callable[..., Any], *arguments: Any) -> None:
        """Call a lifecycle method of the function."""
        function(*arguments)

    def usual_result(self) -> type | None:
        """The class of most results, if known and immutable."""
        # A tuple may be for a side output of another type.
        has_side_outputs = bool(getattr(self, "side_formats", None))
        return None if self.format is None or has_side_outputs else self.format.plain_class

    @property
    def users_function(self) -> Any:
        """The user's function: `function` may be a wrapper around it."""
        return getattr(self.function, "wrapped", self.function)

    def keeps_state(self) -> bool:
        return isinstance(self.users_function, CheckpointedFunction)

    def runtime_context(self, context: OperatorContext) -> RuntimeContext:
        """What the function receives; keyed operators add their state."""
        return RuntimeContext(context)

    def snapshot(self, barrier: Barrier) -> OperatorSnapshot:
        """Let the function update its operator state."""
        if isinstance(self.function, CheckpointedFunction):
            with self.user_code.guard():
                self.call(self.function.snapshot_state, FunctionSnapshotContext(barrier))
        return OperatorSnapshot()

    def notify_complete(self, checkpoint_id: CheckpointId) -> None:
        if isinstance(self.function, CheckpointListener):
            with self.user_code.guard():
                self.call(self.function.notify_checkpoint_complete, checkpoint_id)

    def notify_aborted(self, checkpoint_id: CheckpointId) -> None:
        if isinstance(self.function, CheckpointListener):
            with self.user_code.guard():
                self.call(self.function.notify_checkpoint_aborted, checkpoint_id)

    def close(self) -> None:
        if self._opened and isinstance(self.function, Function):
            self._opened = False
            with self.user_code.guard():
                self.call(self.function.close)
