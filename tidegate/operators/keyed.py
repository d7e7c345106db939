"""Operators whose functions have state and timers for the record's key."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import compress
from typing import Any, NamedTuple

import numpy as np

from tidegate.core.errors import TidegateError
from tidegate.operators.base import OperatorContext, OperatorSnapshot, Output
from tidegate.operators.functions import (
    CoFlatMapFunction,
    FilterFunction,
    FlatMapFunction,
    Function,
    KeyedCoProcessFunction,
    KeyedProcessFunction,
    MapFunction,
    ReduceFunction,
    TimeDomain,
    bound_method,
)
from tidegate.operators.fusion import Fusion, LoopForm, fusion_of, source_of
from tidegate.operators.keyed_context import (
    KeyedContext,
    KeyedStates,
    KeyedTimerContext,
    KeyedTimers,
)
from tidegate.operators.results import emit_outcome, emit_tagged_outcome
from tidegate.operators.runtime_context import RuntimeContext
from tidegate.operators.user_code import (
    USER_FAILURES,
    FunctionOperator,
    Outcome,
    Timestamps,
    position_of_last,
    repeated,
    run_in_pieces,
)
from tidegate.state.backends import create_keyed_backend
from tidegate.state.descriptors import ValueStateDescriptor
from tidegate.state.keys.selection import KeyColumns, KeySelection
from tidegate.state.keys.stable_hash import holds_list, stable_hash, without_lists
from tidegate.state.memory.row_backend import TableBackend
from tidegate.state.timers import TimerQueue
from tidegate.stream.batch import Batch
from tidegate.stream.elements import Barrier, Watermark
from tidegate.types.arrow import ArrowFormat


class KeyedRecords(NamedTuple):
    """Records with their keys, and the places of the keys' state."""

    places: Sequence[Any]
    keys: list[Any]
    records: list[Any]
    stamps: Timestamps | None


class KeyedOperator(FunctionOperator):
    """An operator with a key for each input, and keyed state."""

    backend: TableBackend
    _is_batch: bool
    uses_key = True
    """Whether the function can observe the key of a record."""

    def __init__(
        self, function: Any, keys: Sequence[KeySelection], format: ArrowFormat | None = None
    ) -> None:
        super().__init__(function, format)
        self.keys = tuple(keys)

    def open(self, context: OperatorContext, output: Output) -> None:
        self.backend = create_keyed_backend(
            context.settings,
            context.key_groups,
            context.max_parallelism,
            context.clock,
            context.directory,
        )
        super().open(context, output)
        self._is_batch = context.is_batch
        with self.user_code.guard():
            for key in self.keys:
                key.open(RuntimeContext(context))

    def keeps_state(self) -> bool:
        # A function gets its state through the context in `open`.
        given = self.users_function
        is_opened = isinstance(given, Function) and type(given).open is not Function.open
        return is_opened or super().keeps_state()

    def runtime_context(self, context: OperatorContext) -> RuntimeContext:
        return RuntimeContext(context, KeyedStates(self.backend))

    def process(self, batch: Batch, input_index: int = 0) -> None:
        if not len(batch):
            return
        if batch.format is not None:
            # Functions see records as declared, even if they have not been shipped.
            batch = Batch(columns=batch.columns, format=batch.format, timestamps=batch.timestamps)
        self.emit(run_in_pieces(batch, partial(self._run, input_index)))

    def _run(self, input_index: int, batch: Batch) -> Outcome:
        keyed, no_key = self._keyed(batch, self.keys[input_index])
        outcome = self.run(keyed, input_index)
        self.backend.leave_key()
        self.backend.clean_up(len(batch))
        return outcome._replace(failure=outcome.failure or no_key)

    def _keyed(
        self, batch: Batch, selection: KeySelection
    ) -> tuple[KeyedRecords, TidegateError | None]:
        """The records with a key: all, or those before one whose key fails."""
        if not self.uses_key:
            nowhere = [None] * len(batch)
            return KeyedRecords(nowhere, nowhere, batch.records, batch.timestamps), None
        places, keys, failure = self._places(batch, selection)
        with_key = batch.records if failure is None else batch.records[: len(keys)]
        return KeyedRecords(places, keys, with_key, batch.timestamps), failure

    def _places(
        self, batch: Batch, selection: KeySelection
    ) -> tuple[list[Any], list[Any], TidegateError | None]:
        """The places and keys of all records, or of those before one whose key fails."""
        keys, columns, failure = self.keys_until_failure(selection, batch)
        try:
            places = self.backend.places_of(keys, columns)
        except TypeError as unhashable:
            raise self.user_code.failure_of_batch(unhashable, len(keys)) from None
        return places, keys, failure

    def keys_until_failure(
        self, selection: KeySelection, batch: Batch
    ) -> tuple[list[Any], KeyColumns | None, TidegateError | None]:
        """The keys of all records, also as columns, or of those before one whose key fails."""
        columns, failure = selection.key_columns(batch), None
        if columns is None:
            keys, failure = self.user_code.call_until_failure(selection.function, batch.records)
        else:
            keys = selection.fields(batch)
        if keys:
            try:
                stable_hash(keys[0])
            except USER_FAILURES as error:
                record = batch.slice(0, 1).records[0]
                raise self.user_code.failure(error, record, 0) from None
            if holds_list(keys[0]):
                keys = list(map(without_lists, keys))
        return keys, columns, failure

    @abstractmethod
    def run(self, keyed: KeyedRecords, input_index: int) -> Outcome:
        """Call the function for each record."""

    def emit(self, outcome: Outcome) -> None:
        emit_outcome(self.output, outcome, self.format)

    def last_of_batch(self, watermark: Watermark) -> int | None:
        """When the last processing-time timer is due, for batch jobs, which do not wait for it."""
        is_end = self._is_batch and watermark.is_final
        return self.backend.processing_timers.last_due() if is_end else None

    def snapshot(self, barrier: Barrier) -> OperatorSnapshot:
        super().snapshot(barrier)
        return OperatorSnapshot(keyed=self.backend.freeze())

    def restore(self, snapshots: list[OperatorSnapshot]) -> None:
        self.backend.restore(found.keyed for found in snapshots if found.keyed is not None)

    def close(self) -> None:
        try:
            super().close()
            for key in self.keys:
                key.close()
        finally:
            self.backend.close()


class KeyedMapOperator(KeyedOperator):
    """One result per record."""

    def open(self, context: OperatorContext, output: Output) -> None:
        super().open(context, output)
        self.uses_key = isinstance(self.function, Function)
        self._map = bound_method(self.function, MapFunction, "map")

    def run(self, keyed: KeyedRecords, input_index: int) -> Outcome:
        places, keys, records, stamps = keyed
        backend = self.backend
        keyed_records = zip(places, keys, records, strict=True)
        turns = (record for backend.place, backend.current_key, record in keyed_records)
        return self.user_code.map_until_failure(self._map, records, stamps, turns=turns)


class KeyedFlatMapOperator(KeyedOperator):
    """Any number of results per record: flat_map, and flat_map1 or flat_map2."""

    _functions: tuple[Callable[[Any], Any], ...]

    def open(self, context: OperatorContext, output: Output) -> None:
        super().open(context, output)
        self.uses_key = isinstance(self.function, Function)
        if isinstance(self.function, CoFlatMapFunction):
            self._functions = (self.function.flat_map1, self.function.flat_map2)
        else:
            self._functions = (bound_method(self.function, FlatMapFunction, "flat_map"),)

    def run(self, keyed: KeyedRecords, input_index: int) -> Outcome:
        places, keys, records, stamps = keyed
        backend, function = self.backend, self._functions[input_index]
        rest = iter(records)
        turns = zip(places, keys, rest, strict=True)
        calls = (function(record) for backend.place, backend.current_key, record in turns)
        return self.user_code.any_number(calls, records, rest, stamps)


class KeyedFilterOperator(KeyedOperator):
    """The records that the predicate keeps."""

    def open(self, context: OperatorContext, output: Output) -> None:
        super().open(context, output)
        self.uses_key = isinstance(self.function, Function)
        self._keeps = bound_method(self.function, FilterFunction, "filter")

    def run(self, keyed: KeyedRecords, input_index: int) -> Outcome:
        places, keys, records, stamps = keyed
        backend, keeps = self.backend, self._keeps
        verdicts: list[bool] = []

        def judged(record: Any) -> Any:
            verdicts.append(bool(keeps(record)))
            return record

        keyed_records = zip(places, keys, records, strict=True)
        turns = (record for backend.place, backend.current_key, record in keyed_records)
        results, stamps, failure, _ = self.user_code.map_until_failure(
            judged, records, stamps, turns=turns
        )
        if stamps is not None:
            stamps = stamps[np.array(verdicts, np.bool_)]
        return Outcome(list(compress(results, verdicts)), stamps, failure)


class KeyedReduceOperator(KeyedOperator):
    """Emits the reduced value of the key for every record."""

    def open(self, context: OperatorContext, output: Output) -> None:
        super().open(context, output)
        self._reduce = bound_method(self.function, ReduceFunction, "reduce")
        # The state holds records of the stream, so its type evolves like that of the stream.
        held = None if self.format is None else self.format.type_info
        self._table = self.backend.table(ValueStateDescriptor("_reduced", held))

    def keeps_state(self) -> bool:
        return True

    def run(self, keyed: KeyedRecords, input_index: int) -> Outcome:
        places, _, records, stamps = keyed
        reduce, table = self._reduce, self._table
        kept, private = self.user_code.kept, self.user_code.private
        values = table.values
        results: list[Any] = []
        append = results.append
        failure = record = None
        try:
            for place, record in zip(places, records, strict=True):
                before = values[place]
                if before is None:
                    reduced = record
                else:
                    if table.frozen:
                        before = table.owned(place, before)
                    reduced = reduce(before, record)
                # The emitted value must not change when the function changes its argument.
                emitted = kept(reduced)
                if emitted is not reduced and reduced is not before and reduced is not record:
                    reduced = private(reduced)
                values[place] = reduced
                append(emitted)
        except USER_FAILURES as error:
            failure = self.user_code.failure(error, record, len(results))
        return Outcome(results, None if stamps is None else stamps[: len(results)], failure)


class KeyedProcessOperator(KeyedOperator):
    """Runs a process function with state, timers and side outputs, on one or two inputs."""

    _functions: tuple[Callable[[Any, Any], Any], ...]

    def __init__(
        self,
        function: Function,
        keys: Sequence[KeySelection],
        format: ArrowFormat | None = None,
        side_formats: dict[str, ArrowFormat | None] | None = None,
    ) -> None:
        expected = self.contract(len(keys))
        if not isinstance(function, expected):
            raise TypeError(f"process() here needs a {expected.__name__}, got {function!r}")
        super().__init__(function, keys, format)
        method = getattr(type(function), "process_element", None)
        self._source = source_of(method) if len(keys) == 1 else None
        """The slots may have no access to the user's files."""
        self.side_formats = side_formats if side_formats is not None else {}
        """May be filled until the graph is translated: tags are declared where they are read."""

    def open(self, context: OperatorContext, output: Output) -> None:
        super().open(context, output)
        self._timers = KeyedTimers(self.backend, context.clock, context.watermark)
        self._context, self._timer_context = self.contexts(context, self._timers)
        self._functions = self.functions()
        self._fusion = self._find_fusion(context)

    def keeps_state(self) -> bool:
        return True  # or timers

    @staticmethod
    def contract(inputs: int) -> type[Function]:
        """The required type of the function, by the number of keyed inputs."""
        return KeyedProcessFunction if inputs == 1 else KeyedCoProcessFunction

    def contexts(
        self, context: OperatorContext, timers: KeyedTimers
    ) -> tuple[KeyedContext, KeyedTimerContext]:
        """The contexts for records and for timers."""
        return KeyedContext(self.backend, timers), KeyedTimerContext(self.backend, timers)

    def functions(self) -> tuple[Callable[[Any, Any], Any], ...]:
        """The functions for the records of each keyed input."""
        function = self.function
        if isinstance(function, KeyedProcessFunction):
            return (function.process_element,)
        return function.process_element1, function.process_element2

    def _find_fusion(self, context: OperatorContext) -> Fusion | None:
        given, called = self.function, self._functions[0]
        # Where results are checked one by one, a fused loop would gain little.
        if self.user_code.usual is not tuple or getattr(called, "__self__", None) is not given:
            return None
        if not context.settings.get("tidegate.function.fusion", True):
            return None
        return fusion_of(getattr(called, "__func__", None), self._source, given)

    def _run(self, input_index: int, batch: Batch) -> Outcome:
        if self._fusion is None or not self._fusion.fits(self.function):
            return super()._run(input_index, batch)
        places, keys, no_key = self._places(batch, self.keys[input_index])
        outcome = self._run_fused(self._fusion, batch, places, keys)
        self.backend.leave_key()
        self.backend.clean_up(len(batch))
        return outcome._replace(failure=outcome.failure or no_key)

    def _run_fused(
        self, fusion: Fusion, batch: Batch, places: list[Any], keys: list[Any]
    ) -> Outcome:
        """Run the function on the records at these places, without a call for each."""
        stamps, context = batch.timestamps, self._context
        has_starts = stamps is not None or self.user_code.drops_partial_results
        by_field = batch.has_fields(fusion.fields)
        rest = iter(places)
        turns: list[Iterable[Any]] = [rest]
        if fusion.uses_key:
            turns.append(keys)
        context.current = None
        if stamps is not None and fusion.uses_context:
            turns.append(stamps.tolist())
        turns += map(batch.field, fusion.fields or ()) if by_field else [batch.records]
        values = [getattr(self.function, name).by_place for name in fusion.states]
        results: list[Any] = []
        starts: list[int] = []
        failure = None
        try:
            loop = fusion.loop(LoopForm(by_field, stamps is not None, has_starts))
            in_turn = zip(*turns, strict=False)
            loop(self.function, context, self.backend, in_turn, results, starts, *values)
        except USER_FAILURES as error:
            position = position_of_last(places, rest)
            record = batch.slice(position, position + 1).records[0]
            failure = self.user_code.failure(error, record, position)
            if self.user_code.drops_partial_results:
                del results[starts[-1] :]
        times = None if stamps is None else repeated(stamps, starts[1:], len(results))
        return Outcome(results, times, failure)

    def run(self, keyed: KeyedRecords, input_index: int) -> Outcome:
        places, keys, records, stamps = keyed
        backend, context = self.backend, self._context
        function = self._functions[input_index]
        rest = iter(records)
        if stamps is None:
            context.current = None
            turns = zip(places, keys, rest, strict=True)
            calls = (
                function(record, context) for backend.place, backend.current_key, record in turns
            )
        else:
            timed = zip(places, keys, rest, stamps.tolist(), strict=False)
            calls = (
                function(record, context)
                for backend.place, backend.current_key, record, context.current in timed
            )
        return self.user_code.any_number(calls, records, rest, stamps)

    def emit(self, outcome: Outcome) -> None:
        emit_tagged_outcome(self.output, outcome, self.format, self.side_formats)

    def next_timer(self) -> float | None:
        due = self.backend.processing_timers.next_due()
        return None if due is None else due / 1000

    def fire_timers(self, now: float) -> None:
        milliseconds = int(now * 1000)
        self._fire(self.backend.processing_timers, milliseconds, TimeDomain.PROCESSING_TIME)

    def on_watermark(self, watermark: Watermark) -> None:
        self._timers.watermark = watermark.timestamp
        self._fire(self.backend.event_timers, watermark.timestamp, TimeDomain.EVENT_TIME)
        if (last := self.last_of_batch(watermark)) is not None:
            self._fire(self.backend.processing_timers, last, TimeDomain.PROCESSING_TIME)
        super().on_watermark(watermark)

    def _fire(self, timers: TimerQueue, now: int, domain: TimeDomain) -> None:
        self._timer_context.domain = domain
        results: list[Any] = []
        fired: list[int] = []
        ends: list[int] = []
        failure = None
        try:
            self.user_code.gather(self._due(timers, now, fired), results, ends)
        except USER_FAILURES as error:
            failure = self.user_code.failure(error)
        self.backend.leave_key()
        times = None
        if domain is TimeDomain.EVENT_TIME:
            times = repeated(np.array(fired, np.int64), ends, len(results))
        self.emit(Outcome(results, times, failure))

    def _due(self, timers: TimerQueue, now: int, fired: list[int]) -> Iterator[Any]:
        """The function's results for each due timer, whose time is added to `fired`."""
        backend, context, on_timer = self.backend, self._timer_context, self.function.on_timer
        while (due := timers.next_due()) is not None and due <= now:
            ready = backend.ready_timers(timers, now)
            while (timer := timers.pop_due(ready)) is not None:
                context.current, backend.current_key, backend.place = timer
                fired.append(timer.timestamp)
                yield on_timer(timer.timestamp, context)
            backend.clean_up(len(fired))
