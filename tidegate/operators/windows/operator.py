"""The window operator: assigns records to windows, and emits when triggers fire."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from tidegate.core.errors import GraphError, TidegateError
from tidegate.operators.base import OperatorContext, Output
from tidegate.operators.functions import Function
from tidegate.operators.keyed import KeyedOperator, KeyedRecords
from tidegate.operators.keyed_context import KeyedStates
from tidegate.operators.results import emit_tagged_outcome
from tidegate.operators.runtime_context import RuntimeContext
from tidegate.operators.user_code import USER_FAILURES, Outcome, Timestamps, repeated
from tidegate.operators.windows.assigners import SlicedWindows, WindowAssigner
from tidegate.operators.windows.contents import EvictedContents, WindowContents
from tidegate.operators.windows.contexts import (
    FiringContext,
    KeyScope,
    WindowScope,
    WindowStates,
    WindowTime,
    WindowTimers,
)
from tidegate.operators.windows.functions import clear_of
from tidegate.operators.windows.triggers import (
    EventTimeTrigger,
    ProcessingTimeTrigger,
    PurgingTrigger,
    Trigger,
    TriggerResult,
)
from tidegate.operators.windows.windows import (
    MAX_TIMESTAMP,
    Window,
    state_key,
    window_of,
    without_window,
)
from tidegate.state.keys.key_bytes import NEVER_NAN, with_one_nan
from tidegate.state.keys.selection import KeySelection
from tidegate.state.keys.window_keys import OF_WINDOW, WindowKey, key_of_window
from tidegate.state.timers import TimerQueue
from tidegate.stream.batch import NO_TIMESTAMP, Batch
from tidegate.stream.elements import NO_WATERMARK, Watermark
from tidegate.types.arrow import ArrowFormat
from tidegate.types.privacy import never_change, private_copy

LATE_RECORDS: Final = "numLateRecordsDropped"


class WindowSettings(NamedTuple):
    """How a program defines its windows."""

    assigner: WindowAssigner[Any, Any]
    trigger: Trigger[Any, Any]
    allowed_lateness: int = 0
    late_tag: str | None = None
    """The side output of late records; None: they are dropped."""


class _Run(NamedTuple):
    """Successive records of a key that are in the same slice of time."""

    key: Any
    start: int
    records: list[Any]


class WindowOperator(KeyedOperator):
    """Follows Flink's operator of the same name in what is late, fires, or is cleared when.

    If the trigger only waits for the end of the window, all records of a batch with the same key
    and window are added at once, with the same result.
    """

    _runtime: RuntimeContext
    _key: KeyScope
    _window: WindowScope
    _time: WindowTime
    _timers: WindowTimers
    _assigner: WindowAssigner[Any, Any]
    _trigger: Trigger[Any, Any]
    _is_event_time: bool
    _lateness: int

    def __init__(
        self,
        settings: WindowSettings,
        contents: WindowContents,
        window_function: Any,
        keys: Sequence[KeySelection],
        format: ArrowFormat | None = None,
        side_formats: dict[str, ArrowFormat | None] | None = None,
    ) -> None:
        super().__init__(window_function, keys, format)
        self.settings = settings
        self.contents = contents
        self.side_formats = side_formats if side_formats is not None else {}
        """May be filled until the graph is translated: tags are declared where they are read."""
        contents.evaluation(window_function)

    def open(self, context: OperatorContext, output: Output) -> None:
        super().open(context, output)
        with self.user_code.guard():
            if isinstance(self.contents.function, Function):
                self.contents.function.open(self._runtime)
        settings, backend = self.settings, self.backend
        self._assigner, self._trigger = settings.assigner, settings.trigger
        self._lateness = settings.allowed_lateness
        self._is_event_time = settings.assigner.is_event_time()
        self._time = WindowTime(context.clock, context.watermark, self._runtime)
        self._window = WindowScope(backend)
        self._timers = WindowTimers(backend, self._window, self._time)
        key_states = KeyedStates(backend, self._key)
        self._context = FiringContext(self._window, self._time, self._window_states(), key_states)
        self.contents.bind(backend)
        if isinstance(self.contents, EvictedContents):
            self.contents.context = self._time
        self._evaluate = self.contents.evaluation(self.function)
        self._clear_function = clear_of(self.function)
        self._late_records = self._runtime.get_metrics_group().counter(LATE_RECORDS)
        self._slices = self._bulk_assigner(context)
        self._fired: list[int] = []
        """The times of the results of each firing."""
        self._late: list[int] = []
        """The positions of late records in the batch."""
        self._at: int | None = None
        """The position in the batch of the current record, if records are added one by one."""

    def runtime_context(self, context: OperatorContext) -> RuntimeContext:
        self._key = KeyScope(self.backend)
        self._runtime = RuntimeContext(context, KeyedStates(self.backend, self._key))
        return self._runtime

    def _window_states(self) -> WindowStates | None:
        """The state store of the window function for each window."""
        return WindowStates(self.backend, self._window)

    def _bulk_assigner(self, context: OperatorContext) -> SlicedWindows | None:
        """The assigner, if records may be added together.

        A record that may be poison must be added by itself, after all before it.
        """
        trigger, assigner = self._trigger, self._assigner
        if type(trigger) is PurgingTrigger:
            trigger = trigger.nested_trigger
        waits_for_the_end = EventTimeTrigger if self._is_event_time else ProcessingTimeTrigger
        if (
            type(trigger) is waits_for_the_end
            and isinstance(assigner, SlicedWindows)
            and type(assigner).assign_windows is SlicedWindows.assign_windows
            and assigner.size % assigner.slide == 0
            and not self.contents.takes_timestamps
            and context.poison is None
        ):
            return assigner
        return None

    def keeps_state(self) -> bool:
        return True

    def close(self) -> None:
        try:
            if self._opened and isinstance(self.contents.function, Function):
                with self.user_code.guard():
                    self.contents.function.close()
        finally:
            super().close()

    # --- records --------------------------------------------------------------------------------

    def process(self, batch: Batch, input_index: int = 0) -> None:
        if not len(batch):
            return
        if batch.format is not None:
            # Functions see records as declared, even if they have not been shipped.
            batch = Batch(columns=batch.columns, format=batch.format, timestamps=batch.timestamps)
        stamps = batch.timestamps
        if self._is_event_time and (unfit := without_window(stamps)) is not None:
            place, reason = unfit
            self.process(batch.slice(0, place), input_index)
            raise self.user_code.failure(GraphError(reason), batch.records[place], place)
        keys, _, no_key = self.keys_until_failure(self.keys[input_index], batch)
        records = batch.records
        if len(self.keys) > 1:  # windows of two streams store the stream with each record
            records = [(input_index, record) for record in records]
        keyed = KeyedRecords((), keys, records, stamps)
        failure = self._collect(self._added(keyed), keyed)
        self._emit_late(batch)
        if failure is not None or no_key is not None:
            raise failure or no_key  # type: ignore[misc]
        self.backend.clean_up(len(batch))

    def run(self, keyed: KeyedRecords, input_index: int) -> Outcome:
        raise NotImplementedError("windows fire when their triggers do")

    def _collect(
        self, firings: Iterator[Any], keyed: KeyedRecords | None = None
    ) -> TidegateError | None:
        """Emit the results of firings, up to a failure, which is returned."""
        results: list[Any] = []
        ends: list[int] = []
        failure = None
        self._fired, self._at = [], None
        try:
            self.user_code.gather(firings, results, ends)
        except USER_FAILURES as error:
            failure = self._failure(error, keyed)
            if self.user_code.drops_partial_results:
                del results[ends[-1] if ends else 0 :]
        self._key.leave()
        self._window.leave()
        times = repeated(np.array(self._fired, np.int64), ends, len(results))
        emit_tagged_outcome(
            self.output, Outcome(results, times, None), self.format, self.side_formats
        )
        return failure

    def _failure(self, error: BaseException, keyed: KeyedRecords | None) -> TidegateError:
        if keyed is None:
            return self.user_code.failure(error)
        if self._at is not None:
            return self.user_code.failure(error, keyed.records[self._at], self._at)
        if isinstance(error, TypeError) and self.contents.failed is None:
            return self.user_code.failure_of_batch(error, len(keyed.records))  # unhashable keys
        return self.user_code.failure(error, self.contents.failed)

    def _added(self, keyed: KeyedRecords) -> Iterator[Any]:
        """Add records to their windows; yields results of windows that fire immediately."""
        if self._slices is None:
            return self._add_one_by_one(keyed, range(len(keyed.keys)))
        return self._add_by_slices(keyed, self._slices)

    def _add_by_slices(self, keyed: KeyedRecords, assigner: SlicedWindows) -> Iterator[Any]:
        _, keys, records, stamps = keyed
        size, slide = assigner.size, assigner.slide
        if stamps is None or not self._is_event_time:
            now = self._time.get_current_processing_time()
            starts = np.full(len(keys), assigner.last_starts(np.array([now]))[0])
        else:
            starts = assigner.last_starts(stamps[: len(keys)])
        watermark = self._time.watermark if self._is_event_time else NO_WATERMARK
        if self._lateness and self._may_fire_late(starts, size, slide, watermark):
            # Every record after the end of its window makes it fire again.
            yield from self._add_one_by_one(keyed, range(len(keys)))
            return
        self.contents.failed = None
        if not NEVER_NAN.issuperset(map(type, keys)):
            keys = list(map(with_one_nan, keys))
        of_keys: dict[Any, _Run] = {}
        runs: list[_Run] = []
        for key, start, record in zip(keys, starts.tolist(), records, strict=False):
            run = of_keys.get(key)
            if run is not None and run.start == start:
                run.records.append(record)
            else:
                of_keys[key] = run = _Run(key, start, [record])
                runs.append(run)
        are_shared = slide == size or never_change(records)
        self._add_runs(runs, size, slide, watermark, are_shared=are_shared)
        if watermark != NO_WATERMARK and stamps is not None:
            self._find_late(starts + (size - 1), stamps, watermark)

    @staticmethod
    def _may_fire_late(starts: Timestamps, size: int, slide: int, watermark: int) -> bool:
        """Whether a window of these slices ends before the watermark."""
        return bool(len(starts)) and int(starts.min()) + slide - 1 <= watermark

    def _add_runs(
        self,
        runs: list[_Run],
        size: int,
        slide: int,
        watermark: int,
        *,
        are_shared: bool,
    ) -> None:
        """Add records to the windows that have not ended; each window keeps their order.

        Mutable records are copied for each window but the last.
        """
        windows: list[WindowKey] = []
        added: list[list[Any]] = []
        for key, last, records in runs:
            for start in range(last, last - size, -slide):
                if start + size - 1 <= watermark:
                    break
                windows.append((OF_WINDOW, key, start, start + size))
                is_own = are_shared or start == last
                added.append(records if is_own else list(map(private_copy, records)))
        places = self.backend.places_of(windows)
        contents, values = self.contents, self.contents.table.values
        is_event_time, lateness = self._is_event_time, self._lateness
        timers = self.backend.event_timers if is_event_time else self.backend.processing_timers
        for window, place, records in zip(windows, places, added, strict=True):
            if values[place] is None:
                timers.register(window[3] - 1, window, place)
                if lateness and is_event_time and window[3] - 1 + lateness < MAX_TIMESTAMP:
                    timers.register(window[3] - 1 + lateness, window, place)
            contents.add_all(place, records)

    def _find_late(self, ends: Timestamps, stamps: Timestamps, watermark: int) -> None:
        """Collect the records whose windows have all ended."""
        late = (ends <= watermark) & (stamps[: len(ends)] + self._lateness <= watermark)
        if late.any():
            self._late = np.flatnonzero(late).tolist()

    def _add_one_by_one(self, keyed: KeyedRecords, rows: Iterable[int]) -> Iterator[Any]:
        _, keys, records, stamps = keyed
        times = [NO_TIMESTAMP] * len(keys) if stamps is None else stamps.tolist()
        assign, time, scope = self._assigner.assign_windows, self._time, self._window
        contents, trigger, timers = self.contents, self._trigger, self._timers
        for row in rows:
            self._at = row
            key, record, timestamp = keys[row], records[row], times[row]
            self._key.enter(key)
            is_skipped = True
            for window, held in held_by(assign(record, timestamp, time), record):
                if self._is_late(window):
                    continue
                is_skipped = False
                found = state_key(key, window)
                [place] = self.backend.places_of([found])
                scope.enter(found, window, place)
                contents.add(place, held, None if timestamp == NO_TIMESTAMP else timestamp)
                result = trigger.on_element(record, timestamp, window, timers)
                if result is not TriggerResult.CONTINUE:
                    yield from self._act(result)
                self._register_cleanup(window)
            if is_skipped and self._is_too_late(timestamp):
                self._late.append(row)

    def _emit_late(self, batch: Batch) -> None:
        late, self._late = self._late, []
        if not late:
            return
        if self.settings.late_tag is None:
            self._late_records.inc(len(late))
            return
        found = batch.take(np.array(late, np.intp))
        side = Batch(
            records=found.records,
            format=self.side_formats.get(self.settings.late_tag),
            timestamps=found.timestamps,
        )
        self.output.emit_side(self.settings.late_tag, side)

    # --- windows --------------------------------------------------------------------------------

    def _act(self, result: TriggerResult) -> Iterator[Any]:
        """Carry out the trigger's decision on the window of the scope."""
        window, place = self._window.window, self._window.place
        if result.is_fire():
            contents = self.contents.get(place, window)
            if contents is not None:
                self._fired.append(window.max_timestamp())
                key = key_of_window(self._window.key)
                yield self._evaluate(key, window, contents, self._context)
                self.contents.after(place, window)
        if result.is_purge():
            self.contents.clear(place)

    def _cleanup_time(self, window: Window) -> int:
        """When a window can be removed; the end of time if never."""
        end = window.max_timestamp()
        return min(end + self._lateness, MAX_TIMESTAMP) if self._is_event_time else end

    def _is_late(self, window: Window) -> bool:
        return self._is_event_time and self._cleanup_time(window) <= self._time.watermark

    def _is_too_late(self, timestamp: int) -> bool:
        return self._is_event_time and timestamp + self._lateness <= self._time.watermark

    def _register_cleanup(self, window: Window) -> None:
        time = self._cleanup_time(window)
        if time == MAX_TIMESTAMP:
            return
        if self._is_event_time:
            self._timers.register_event_time_timer(time)
        else:
            self._timers.register_processing_time_timer(time)

    def _delete_cleanup(self, window: Window) -> None:
        time = self._cleanup_time(window)
        if self._is_event_time:
            self._timers.delete_event_time_timer(time)
        else:
            self._timers.delete_processing_time_timer(time)

    def _clear(self, window: Window) -> None:
        """Remove the window of the scope with all its state."""
        self.contents.clear(self._window.place)
        self._trigger.clear(window, self._timers)
        if self._clear_function is not None:
            self._clear_function(self._context)

    # --- timers ---------------------------------------------------------------------------------

    def next_timer(self) -> float | None:
        due = self.backend.processing_timers.next_due()
        return None if due is None else due / 1000

    def fire_timers(self, now: float) -> None:
        self._fire(self.backend.processing_timers, int(now * 1000), is_event_time=False)

    def on_watermark(self, watermark: Watermark) -> None:
        self._time.watermark = watermark.timestamp
        self._fire(self.backend.event_timers, watermark.timestamp, is_event_time=True)
        if (last := self.last_of_batch(watermark)) is not None:
            self._fire(self.backend.processing_timers, last, is_event_time=False)
        super().on_watermark(watermark)

    def _fire(self, timers: TimerQueue, now: int, *, is_event_time: bool) -> None:
        due = timers.next_due()
        if due is not None and due <= now:
            failure = self._collect(self._due(timers, now, is_event_time))
            if failure is not None:
                raise failure

    def _due(self, timers: TimerQueue, now: int, is_event_time: bool) -> Iterator[Any]:
        backend, scope, count = self.backend, self._window, 0
        only_ends = self._slices is not None and is_event_time is self._is_event_time
        purges = type(self._trigger) is PurgingTrigger
        lateness = self._lateness if self._is_event_time else 0
        while (due := timers.next_due()) is not None and due <= now:
            ready = backend.ready_timers(timers, now)
            while (timer := timers.pop_due(ready)) is not None:
                count += 1
                key = timer.key
                self._key.enter(key_of_window(key))
                window = window_of(key)
                scope.enter(key, window, timer.place)
                if only_ends:
                    # The same as `_on_timer`, without a trigger whose answer is known.
                    end = key[3] - 1
                    if timer.timestamp == end:
                        contents = self.contents.get(timer.place, window)
                        if contents is not None:
                            self._fired.append(end)
                            yield self._evaluate(key[1], window, contents, self._context)
                        if purges:
                            self.contents.clear(timer.place)
                    if timer.timestamp == end + lateness:
                        self.contents.clear(timer.place)
                        if self._clear_function is not None:
                            self._clear_function(self._context)
                else:
                    yield from self._on_timer(window, timer.timestamp, is_event_time)
            self._key.leave()
            backend.clean_up(count)

    def _on_timer(self, window: Window, time: int, is_event_time: bool) -> Iterator[Any]:
        trigger = self._trigger
        on_time = trigger.on_event_time if is_event_time else trigger.on_processing_time
        result = on_time(time, window, self._timers)
        if result is not TriggerResult.CONTINUE:
            yield from self._act(result)
        if is_event_time is self._is_event_time and time == self._cleanup_time(window):
            self._clear(window)


def held_by(windows: Collection[Any], record: Any) -> Iterator[tuple[Any, Any]]:
    """Each window with its copy of the record: functions may change one of them."""
    if len(windows) == 1:
        return zip(windows, (record,), strict=True)
    return ((window, private_copy(record)) for window in windows)
