"""Pairs of records of two keyed streams that are close in event time."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from tidegate.core.errors import GraphError
from tidegate.operators.base import OperatorContext, Output
from tidegate.operators.joins.functions import ProcessJoinFunction
from tidegate.operators.keyed import KeyedOperator, KeyedRecords
from tidegate.operators.results import emit_tagged_outcome
from tidegate.operators.user_code import (
    USER_FAILURES,
    Outcome,
    Timestamps,
    position_of_last,
    repeated,
)
from tidegate.state.descriptors import ListStateDescriptor
from tidegate.state.keys.key_bytes import with_one_nan
from tidegate.state.keys.selection import KeySelection
from tidegate.stream.batch import NO_TIMESTAMP, Batch
from tidegate.stream.elements import Watermark
from tidegate.types.arrow import ArrowFormat

_BUFFERS: Final = ("left-buffer", "right-buffer")


class IntervalSettings(NamedTuple):
    """Which right records join a left one: those from `lower` to `upper` ms after it."""

    lower: int
    upper: int
    """Both bounds are inclusive."""
    late_tags: tuple[str | None, str | None] = (None, None)
    """The side outputs of late records of both streams; None: they are dropped."""


class IntervalJoinOperator(KeyedOperator):
    """Keeps records of both sides while records of the other side can still join them.

    Each buffer is a list of (timestamp, record), ordered by time; None: it is empty.
    """

    def __init__(
        self,
        settings: IntervalSettings,
        function: ProcessJoinFunction[Any, Any, Any],
        keys: Sequence[KeySelection],
        format: ArrowFormat | None = None,
        side_formats: dict[str, ArrowFormat | None] | None = None,
    ) -> None:
        if not isinstance(function, ProcessJoinFunction):
            raise TypeError(f"process() here needs a ProcessJoinFunction, got {function!r}")
        super().__init__(function, keys, format)
        self.settings = settings
        self.side_formats = side_formats if side_formats is not None else {}
        """May be filled until the graph is translated: tags are declared where they are read."""

    def open(self, context: OperatorContext, output: Output) -> None:
        super().open(context, output)
        self._watermark = context.watermark
        self._buffers = [self.backend.table(ListStateDescriptor(name)) for name in _BUFFERS]
        self._context = _PairContext()
        self._late: list[tuple[Any, int]] = []
        """The late records of the batch, with their timestamps."""
        self._pairs_before = 0
        """How many pairs preceded the current record."""

    def keeps_state(self) -> bool:
        return True

    def process(self, batch: Batch, input_index: int = 0) -> None:
        stamps = batch.timestamps
        if not len(batch):
            return
        if (unfit := without_timestamp(stamps)) is not None:
            place, reason = unfit
            self.process(batch.slice(0, place), input_index)
            raise self.user_code.failure(GraphError(reason), batch.records[place], place)
        try:
            super().process(batch, input_index)
        finally:
            self._emit_late(input_index)

    def _emit_late(self, input_index: int) -> None:
        late, self._late = self._late, []
        tag = self.settings.late_tags[input_index]
        if tag is not None and late:
            times = np.array([time for _, time in late], np.int64)
            side = Batch(
                records=[record for record, _ in late],
                format=self.side_formats.get(tag),
                timestamps=times,
            )
            self.output.emit_side(tag, side)

    def run(self, keyed: KeyedRecords, input_index: int) -> Outcome:
        results: list[Any] = []
        ends: list[int] = []
        times: list[int] = []
        rest = iter(keyed.records)
        failure = None
        try:
            self.user_code.gather(self._joined(keyed, rest, input_index, times), results, ends)
        except USER_FAILURES as error:
            place = position_of_last(keyed.records, rest)
            failure = self.user_code.failure(error, keyed.records[place], place)
            if self.user_code.drops_partial_results:
                del ends[self._pairs_before :]
                del results[ends[-1] if ends else 0 :]
        stamps: Timestamps = repeated(np.array(times, np.int64), ends, len(results))
        return Outcome(results, stamps, failure)

    def _joined(
        self, keyed: KeyedRecords, rest: Iterator[Any], side: int, times: list[int]
    ) -> Iterator[Any]:
        assert keyed.stamps is not None
        lower, upper = self.settings.lower, self.settings.upper
        if side == 1:
            lower, upper = -upper, -lower
        stays = max(upper, 0)
        own, other = self._buffers[side], self._buffers[1 - side]
        timers, backend = self.backend.event_timers, self.backend
        context, process = self._context, self.function.process_element
        rows = zip(keyed.places, keyed.keys, rest, keyed.stamps.tolist(), strict=False)
        for place, key, record, time in rows:
            if time < self._watermark:
                self._late.append((record, time))
                continue
            backend.place, backend.current_key = place, key
            self._pairs_before = len(times)
            found = other.values[place]
            if found is not None:
                found = other.owned(place, found)
                # A tuple without a record sorts before all records of its time.
                first = bisect_left(found, (time + lower,))
                found = found[first : bisect_left(found, (time + upper + 1,), first)]
            for theirs, match in found or ():
                times.append(max(time, theirs))
                if side == 0:
                    context.times = time, theirs
                    yield process(record, match, context)
                else:
                    context.times = theirs, time
                    yield process(match, record, context)
            stored = own.values[place]
            if stored is None:
                own.values[place] = [(time, record)]
                timers.register(time + stays + 1, with_one_nan(key), place)
                continue
            stored = own.owned(place, stored)
            if stored[-1][0] <= time:
                stored.append((time, record))
            else:
                at = bisect_left(stored, (time + 1,))
                stored.insert(at, (time, record))
                if at == 0:
                    timers.register(time + stays + 1, with_one_nan(key), place)

    def emit(self, outcome: Outcome) -> None:
        emit_tagged_outcome(self.output, outcome, self.format, self.side_formats)

    def on_watermark(self, watermark: Watermark) -> None:
        self._watermark = watermark.timestamp
        self._forget(watermark.timestamp)
        super().on_watermark(watermark)

    def _forget(self, watermark: int) -> None:
        """Remove records that no record of the other side can join any longer.

        A record at the watermark is not late, so what it can join stays.
        There is a timer for the first record of each buffer.
        """
        timers, settings = self.backend.event_timers, self.settings
        stays = max(settings.upper, 0), max(-settings.lower, 0)
        count = 0
        while (due := timers.next_due()) is not None and due <= watermark:
            ready = self.backend.ready_timers(timers, watermark)
            while (timer := timers.pop_due(ready)) is not None:
                count += 1
                for buffer, time in zip(self._buffers, stays, strict=True):
                    stored = buffer.values[timer.place]
                    if stored is None:
                        continue
                    gone = bisect_left(stored, (watermark - time,))
                    if gone == len(stored):
                        buffer.values[timer.place] = None
                    else:  # nothing is gone if an earlier version set the timer
                        stored = buffer.owned(timer.place, stored)
                        del stored[:gone]
                        timers.register(stored[0][0] + time + 1, timer.key, timer.place)
            self.backend.clean_up(count)


class _PairContext(ProcessJoinFunction.Context):
    times = (0, 0)

    def get_left_timestamp(self) -> int:
        return self.times[0]

    def get_right_timestamp(self) -> int:
        return self.times[1]

    def get_timestamp(self) -> int:
        return max(self.times)


def without_timestamp(times: Timestamps | None) -> tuple[int, str] | None:
    """The position of the first record without a timestamp, and what to do."""
    if times is not None and int(times.min()) != NO_TIMESTAMP:
        return None
    return 0 if times is None else int(times.argmin()), _NO_TIMESTAMP


_NO_TIMESTAMP: Final = (
    "an interval join needs records with timestamps, but this one has none: call "
    "assign_timestamps_and_watermarks() before it"
)
