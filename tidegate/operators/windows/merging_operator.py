"""The window operator for windows that merge, such as sessions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from tidegate.operators.base import OperatorContext, Output
from tidegate.operators.keyed import KeyedRecords
from tidegate.operators.windows.assigners import EventTimeSessionWindows, MergingWindowAssigner
from tidegate.operators.windows.contents import WindowContents
from tidegate.operators.windows.contexts import WindowStates
from tidegate.operators.windows.merging import Merge, MergingWindowSet
from tidegate.operators.windows.operator import (
    WindowOperator,
    WindowSettings,
    held_by,
)
from tidegate.operators.windows.triggers import EventTimeTrigger, PurgingTrigger, TriggerResult
from tidegate.operators.windows.windows import TimeWindow, Window, state_key, window_of_parts
from tidegate.state.descriptors import ValueStateDescriptor
from tidegate.state.keys.selection import KeySelection
from tidegate.stream.batch import NO_TIMESTAMP
from tidegate.types.arrow import ArrowFormat

WINDOWS_STATE: Final = "merging-window-set"


@dataclass(slots=True)
class _Session:
    """A session while records are added to it."""

    start: int
    end: int
    merged: list[Window] = field(default_factory=list)
    """The sessions merged into it, possibly including its previous self."""
    rows: list[int] = field(default_factory=list)
    """The positions of its new records in the batch."""


class MergingWindowOperator(WindowOperator):
    """Keeps the set of windows of each key; contents, timers and trigger state follow merges.

    The state of a window is always stored under the window itself, so that savepoints show sessions
    as they are.
    """

    _assigner: MergingWindowAssigner[Any, Any]

    def open(self, context: OperatorContext, output: Output) -> None:
        super().open(context, output)
        self._sets = self.backend.table(ValueStateDescriptor(WINDOWS_STATE))
        trigger = self._trigger
        if type(trigger) is PurgingTrigger:
            trigger = trigger.nested_trigger
        self._adds_together = (
            type(self._assigner) is EventTimeSessionWindows
            and type(trigger) is EventTimeTrigger
            and not self.contents.takes_timestamps
            and context.poison is None
        )

    def _window_states(self) -> WindowStates | None:
        return None

    def _windows(self) -> MergingWindowSet:
        """The windows of the current key."""
        stored = self._sets.values[self._key.place] or ()
        return MergingWindowSet(self._assigner, map(window_of_parts, stored))

    def _keep(self, windows: MergingWindowSet) -> None:
        parts = tuple(window.parts() for window in windows.windows)
        self._sets.values[self._key.place] = parts or None

    def _added(self, keyed: KeyedRecords) -> Iterator[Any]:
        if self._adds_together and keyed.stamps is not None:
            return self._add_by_key(keyed, keyed.stamps.tolist())
        return super()._added(keyed)

    def _add_by_key(self, keyed: KeyedRecords, times: list[int]) -> Iterator[Any]:
        """Add the records of each key together, unless one of them fires or is late by itself."""
        assert isinstance(self._assigner, EventTimeSessionWindows)
        gap, watermark = self._assigner.gap, self._time.watermark
        rows_of: dict[Any, list[int]] = {}
        for row, key in enumerate(keyed.keys):
            rows_of.setdefault(key, []).append(row)
        self.contents.failed = None
        for key, rows in rows_of.items():
            if min(times[row] for row in rows) + gap - 1 <= watermark:
                yield from self._add_one_by_one(keyed, rows)
                self._at = None
            else:
                self._key.enter(key)
                self._add_sessions(key, [(times[row], row) for row in rows], keyed.records)

    def _add_sessions(self, key: Any, added: list[tuple[int, int]], records: list[Any]) -> None:
        """Add records at these times, none of which is late, and merge sessions."""
        assert isinstance(self._assigner, EventTimeSessionWindows)
        gap = self._assigner.gap
        stored: tuple[tuple[int, int], ...] = self._sets.values[self._key.place] or ()
        spans = [(start, end, -1) for start, end in stored]
        spans += [(time, time + gap, row) for time, row in added]
        sessions: list[_Session] = []
        for start, end, row in sorted(spans):
            if not sessions or start > sessions[-1].end:
                sessions.append(_Session(start, end))
            session = sessions[-1]
            session.end = max(session.end, end)
            if row < 0:
                session.merged.append(TimeWindow(start, end))
            else:
                session.rows.append(row)
        for session in sessions:
            if session.rows:
                window = TimeWindow(session.start, session.end)
                if session.merged and session.merged != [window]:
                    self._merge(key, Merge(window, tuple(session.merged)))
                self._enter(key, window)
                self._timers.register_event_time_timer(window.max_timestamp())
                self._register_cleanup(window)
                self.contents.add_all(
                    self._window.place, [records[row] for row in sorted(session.rows)]
                )
        self._sets.values[self._key.place] = tuple((s.start, s.end) for s in sessions)

    def _add_one_by_one(self, keyed: KeyedRecords, rows: Iterable[int]) -> Iterator[Any]:
        _, keys, records, stamps = keyed
        times = [NO_TIMESTAMP] * len(keys) if stamps is None else stamps.tolist()
        for row in rows:
            self._at = row
            key, record, timestamp = keys[row], records[row], times[row]
            self._key.enter(key)
            is_skipped = True
            windows = self._windows()
            assigned = self._assigner.assign_windows(record, timestamp, self._time)
            for window, held in held_by(assigned, record):
                actual, merges = windows.add(window)
                for merge in merges:
                    self._merge(key, merge)
                self._enter(key, actual)
                if self._is_late(actual):
                    # The merged window ends before the watermark: this is its last chance to fire.
                    if merges:
                        yield from self._act(TriggerResult.FIRE_AND_PURGE)
                        self._clear(actual)
                        self._delete_cleanup(actual)
                    windows.retire(actual)
                    continue
                is_skipped = False
                place = self._window.place
                self.contents.add(place, held, None if timestamp == NO_TIMESTAMP else timestamp)
                result = self._trigger.on_element(record, timestamp, actual, self._timers)
                if result is not TriggerResult.CONTINUE:
                    yield from self._act(result)
                self._register_cleanup(actual)
            self._keep(windows)
            if is_skipped and self._is_too_late(timestamp):
                self._late.append(row)

    def _enter(self, key: Any, window: Window) -> None:
        found = state_key(key, window)
        self._window.enter(found, window, self.backend.places_of([found])[0])

    def _merge(self, key: Any, merge: Merge) -> None:
        keys = [state_key(key, window) for window in (merge.result, *merge.merged)]
        target, *sources = self.backend.places_of(keys)
        self._window.enter(keys[0], merge.result, target)
        self._timers.merged = sources
        self._trigger.on_merge(merge.result, self._timers)
        self._timers.merged = ()
        for window, found, place in zip(merge.merged, keys[1:], sources, strict=True):
            if window != merge.result:
                self._window.enter(found, window, place)
                self._trigger.clear(window, self._timers)
                self._delete_cleanup(window)
        self.contents.merge(target, sources)

    def _on_timer(self, window: Window, time: int, is_event_time: bool) -> Iterator[Any]:
        windows = self._windows()
        if window not in windows.windows:
            return
        yield from super()._on_timer(window, time, is_event_time)
        if is_event_time is self._is_event_time and time == self._cleanup_time(window):
            windows.retire(window)
            self._keep(windows)


def window_operator(
    settings: WindowSettings,
    contents: WindowContents,
    window_function: Any,
    keys: Sequence[KeySelection],
    format: ArrowFormat | None = None,
    side_formats: dict[str, ArrowFormat | None] | None = None,
) -> WindowOperator:
    """The operator for windows of this assigner."""
    merges = isinstance(settings.assigner, MergingWindowAssigner)
    kind = MergingWindowOperator if merges else WindowOperator
    return kind(settings, contents, window_function, keys, format, side_formats)
