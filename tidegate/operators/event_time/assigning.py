"""Assigns timestamps and emits watermarks, in a source or anywhere in a stream."""

from __future__ import annotations

import pickle
from collections.abc import Hashable, Mapping
from dataclasses import dataclass

from tidegate.operators.base import Operator, OperatorContext, OperatorSnapshot, Output
from tidegate.operators.event_time.generators import Track, create_track
from tidegate.operators.event_time.strategy import WatermarkStrategy
from tidegate.operators.event_time.timestamps import stamping, timestamp_field
from tidegate.operators.user_code import UserCode
from tidegate.stream.batch import Batch
from tidegate.stream.elements import NO_WATERMARK, Barrier, Watermark, WatermarkStatus
from tidegate.types.typeinfo import TypeInformation

ALL = None
"""The split of records without a particular split."""


@dataclass(frozen=True, slots=True)
class TrackState:
    """The event time of a split in a checkpoint."""

    watermark: int
    is_idle: bool
    generator: bytes
    """Pickled."""


class EventTime:
    """The event time of one subtask: a generator for each split, combined by their minimum.

    Idle splits do not hold event time back. If all are idle, the output is idle, at the highest of
    their watermarks: the order in which they became idle does not matter. A step is not triggered
    if there is nothing new to emit.
    """

    def __init__(
        self,
        strategy: WatermarkStrategy,
        field: int | None,
        context: OperatorContext,
        output: Output,
    ) -> None:
        if context.is_batch:
            strategy = WatermarkStrategy(assigner=strategy.assigner)  # nothing is ever late
        self._strategy = strategy
        self._user_code = UserCode(context)
        self._stamp = stamping(strategy, field, self._user_code)
        self._clock = context.clock
        self._output = output
        interval = context.settings.get("pipeline.auto-watermark-interval")
        self._interval = 0.2 if interval is None else interval.total_seconds()
        timeout = strategy.idle_timeout
        self._idle_timeout = None if timeout is None else timeout.total_seconds()
        self._next_emission = self._clock.time() + self._interval
        self._tracks: dict[Hashable, Track] = {}
        self._watermark = context.emitted_watermark
        self._is_idle = False
        self._owes_idleness = False
        """Whether all splits were idle in the restored checkpoint: receivers may be new."""
        self._paused_until: float | None = None
        self.ahead: frozenset[Hashable] = frozenset()
        """The splits that have to wait for the slowest source of the group."""

    def align(self, lowest: Mapping[str, int]) -> bool:
        """Whether to continue reading, given the watermark of the slowest source of each group."""
        alignment = self._strategy.alignment
        bound = None if alignment is None else lowest.get(alignment.group)
        self._paused_until, self.ahead = None, frozenset()
        if alignment is None or bound is None:
            return True
        most = bound + alignment.max_drift
        waits = self._watermark > most
        self.ahead = frozenset(
            split
            for split, track in self._tracks.items()
            if split is not ALL and track.watermark > most
        )
        if waits or self.ahead:
            now = self._clock.time()
            self._paused_until = now + alignment.update_interval.total_seconds()
            for split, track in self._tracks.items():
                if waits or split in self.ahead:
                    track.active_at = now  # what has to wait is not idle
        return not waits

    def aligned(self) -> tuple[str, int] | None:
        """The group, and its watermark in it; None: it is not aligned."""
        alignment = self._strategy.alignment
        return None if alignment is None or self._is_idle else (alignment.group, self._watermark)

    def add(self, split: Hashable = ALL) -> Track:
        """Add a split; until its records arrive, it holds event time back."""
        track = self._tracks.get(split)
        if track is None:
            track = self._start(split)
            self._combine()
        return track

    def _start(self, split: Hashable) -> Track:
        track = create_track(self._strategy, self._user_code, self._clock.time())
        if split is not ALL:
            self._tracks.pop(ALL, None)
        self._tracks[split] = track
        return track

    def release(self, split: Hashable) -> None:
        """Remove a split: no records follow."""
        track = self._tracks.get(split)
        if track is None:
            return
        for element in track.emit():
            self._apply(track, element)
        self._combine()
        del self._tracks[split]
        if self._tracks:
            self._combine()
        else:
            self.add()

    def state_of(self, split: Hashable = ALL) -> TrackState | None:
        """The event time of a split for a checkpoint; None: it has no track."""
        track = self._tracks.get(split)
        if track is None:
            return None
        with self._user_code.guard():
            return TrackState(track.watermark, track.is_idle, pickle.dumps(track.state()))

    def resume(self, state: TrackState, split: Hashable = ALL) -> None:
        track = self._tracks.get(split) or self._start(split)
        track.watermark, track.is_idle = state.watermark, state.is_idle
        with self._user_code.guard():
            track.resume(pickle.loads(state.generator))
        self._is_idle = all(track.is_idle for track in self._tracks.values())
        self._owes_idleness = self._is_idle

    def process(self, batch: Batch, split: Hashable = ALL) -> None:
        """Emit records of a split with their timestamps, and due watermarks."""
        track = self._tracks.get(split) or self.add(split)
        stamped, failure = self._stamp(batch)
        now = self._clock.time()
        track.active_at = now
        if len(stamped):
            if track.is_idle:
                track.is_idle = False
                self._combine()
            marks = track.take(stamped)
            if track.failed_at is not None:
                place, failure = track.failed_at
                stamped, track.failed_at = stamped.slice(0, place), None
            start = 0
            for place, element in marks:
                if place > start:
                    self._output.emit(stamped.slice(start, place))
                    start = place
                self._apply(track, element)
                self._combine()
            if start < len(stamped):
                self._output.emit(stamped.slice(start, len(stamped)) if start else stamped)
        if failure is not None:
            raise failure
        if self._interval > 0 and self._next_emission <= now:
            self._emit_periodically(now)

    def next_timer(self) -> float | None:
        due = [self._clock.time()] if self._owes_idleness else []
        if self._paused_until is not None:
            due.append(self._paused_until)
        if self._interval > 0 and any(track.has_news for track in self._tracks.values()):
            due.append(self._next_emission)
        if self._idle_timeout is not None:
            due += [
                track.active_at + self._idle_timeout
                for track in self._tracks.values()
                if not track.is_idle
            ]
        return min(due, default=None)

    def fire(self, now: float) -> None:
        """Emit the periodic watermark, and mark splits idle that have been silent for too long."""
        if self._interval > 0 and self._next_emission <= now:
            self._emit_periodically(now)
        timeout = self._idle_timeout
        silent = [
            track
            for track in self._tracks.values()
            if timeout is not None and not track.is_idle and track.active_at + timeout <= now
        ]
        for track in silent:
            for element in track.emit():
                self._apply(track, element)
            track.is_idle = True
        if silent or self._owes_idleness:
            self._combine()

    def _emit_periodically(self, now: float) -> None:
        for track in self._tracks.values():
            for element in track.emit():
                self._apply(track, element)
        self._next_emission = now + self._interval
        self._combine()

    @staticmethod
    def _apply(track: Track, element: Watermark | WatermarkStatus) -> None:
        if isinstance(element, Watermark):
            track.watermark = max(track.watermark, element.timestamp)
            track.is_idle = False
        else:
            track.is_idle = element is WatermarkStatus.IDLE

    def _combine(self) -> None:
        active = [track.watermark for track in self._tracks.values() if not track.is_idle]
        if self._is_idle and active:
            self._is_idle = False
            self._output.emit_watermark_status(WatermarkStatus.ACTIVE)
        idle = (track.watermark for track in self._tracks.values())
        reached = min(active) if active else max(idle, default=NO_WATERMARK)
        if reached > self._watermark:
            self._watermark = reached
            self._output.emit_watermark(Watermark(reached))
        if not active and self._tracks and (self._owes_idleness or not self._is_idle):
            self._is_idle = True
            self._output.emit_watermark_status(WatermarkStatus.IDLE)
        self._owes_idleness = False


class AssignTimestampsOperator(Operator):
    """`assign_timestamps_and_watermarks`: event time starts here; earlier watermarks end here."""

    def __init__(self, strategy: WatermarkStrategy, field: int | None = None) -> None:
        self.strategy = strategy
        self.field = field

    def open(self, context: OperatorContext, output: Output) -> None:
        super().open(context, output)
        self._time = EventTime(self.strategy, self.field, context, output)
        self._time.add()

    def process(self, batch: Batch, input_index: int = 0) -> None:
        self._time.process(batch)

    def snapshot(self, barrier: Barrier) -> OperatorSnapshot:
        return OperatorSnapshot(generator=self._time.state_of())

    def restore(self, snapshots: list[OperatorSnapshot]) -> None:
        for found in snapshots:
            if found.generator is not None:
                self._time.resume(found.generator)

    def on_watermark(self, watermark: Watermark) -> None:
        if watermark.is_final:
            self.output.emit_watermark(watermark)

    def on_watermark_status(self, status: WatermarkStatus) -> None:
        """Ignored: idleness, too, is determined by the strategy."""

    def next_timer(self) -> float | None:
        return self._time.next_timer()

    def fire_timers(self, now: float) -> None:
        self._time.fire(now)


def assign_timestamps(
    strategy: WatermarkStrategy, type_info: TypeInformation | None
) -> AssignTimestampsOperator:
    """The operator for a stream of this type.

    Raises:
        GraphError: the strategy names a field that the stream does not have.
    """
    return AssignTimestampsOperator(strategy, timestamp_field(strategy, type_info))
