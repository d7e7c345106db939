"""Bugs of event time: watermarks, idleness, timers, windows and joins."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.sim.bugs.planting import bug, instead, section
from tests.sim.tides import NEAR
from tidegate.operators.endpoints.operators import SourceOperator
from tidegate.operators.event_time.assigning import EventTime
from tidegate.operators.event_time.generators import GeneratorTrack
from tidegate.operators.joins.interval_join import IntervalJoinOperator
from tidegate.operators.windows.columnar.operator import ColumnarWindowOperator
from tidegate.operators.windows.operator import WindowOperator
from tidegate.protocol import restore
from tidegate.protocol.watermark_valve import SubtaskTime, WatermarkValve
from tidegate.slot import pipeline_host
from tidegate.state.timers import TimerQueue
from tidegate.stream.elements import NO_WATERMARK, WatermarkStatus

section(
    "kill a slot",
    "user code fails",
    "rescale",
    "savepoint",
    interval=300,
    mode="EXACTLY_ONCE",
    time="tumbling",
)
bug("event time is not restored at the gates", (SubtaskTime, "resume", instead(None)))
bug(
    "operators begin without event time after a restore",
    (pipeline_host, "_received", instead(NO_WATERMARK)),
)


def _any_channel(original: Any) -> Any:
    def lowest(self: Any) -> Any:
        return self._emit(max(time.watermark for time in self._channels.values()))

    return lowest


bug(
    "event time follows the channel that is furthest",
    (WatermarkValve, "_lowest", _any_channel),
    width=3,
)


def _overtakes(original: Any) -> Any:
    return lambda self, batch: [(0, element) for _, element in original(self, batch)]


bug("a watermark overtakes the records before it", (GeneratorTrack, "take", _overtakes))


def _cleared(original: Any) -> Any:
    def open(self: Any, context: Any, output: Any) -> None:
        is_restored = context.watermark != NO_WATERMARK
        if is_restored and isinstance(self, ColumnarWindowOperator):
            self.lateness = 0
        original(self, context, output)
        if is_restored and isinstance(self, WindowOperator):
            self._lateness = 0

    return open


bug(
    "windows go when they fire, although late records are allowed",
    (WindowOperator, "open", _cleared),
    (ColumnarWindowOperator, "open", _cleared),
    width=2,
)


def _restored_again(original: Any) -> Any:
    def add_all(self: Any, timers: Any) -> None:
        found = list(timers)
        original(self, found)
        self._owed = {timer[:2] for timer in found}

    return add_all


def _popped_again(original: Any) -> Any:
    def pop_due(self: Any, now: int) -> Any:
        timer = original(self, now)
        if timer is not None and timer[:2] in (owed := getattr(self, "_owed", set())):
            owed.discard(timer[:2])
            self.register(*timer)
        return timer

    return pop_due


bug(
    "timers are restored twice",
    (TimerQueue, "add_all", _restored_again),
    (TimerQueue, "pop_due", _popped_again),
    time="timers",
)
bug(
    "a rescaled operator begins without event time",
    (
        restore,
        "_time_of",
        lambda o: (
            lambda record, parallelism, subtask, feeding: (
                o(record, parallelism, subtask, feeding)
                if record.parallelism == parallelism
                else replace(o(record, parallelism, subtask, feeding), received=NO_WATERMARK)
            )
        ),
    ),
)
bug(
    "late records are not told from others after a restore",
    (
        WindowOperator,
        "open",
        lambda o: (
            lambda self, context, output: o(self, replace(context, watermark=NO_WATERMARK), output)
        ),
    ),
    typed=False,
)
bug(
    "a join forgets records that others can still join",
    (IntervalJoinOperator, "_forget", lambda o: lambda self, now: o(self, now + NEAR)),
    time="join",
)
bug(
    "a join takes what is late after a restore",
    (
        IntervalJoinOperator,
        "open",
        lambda o: (
            lambda self, context, output: o(self, replace(context, watermark=NO_WATERMARK), output)
        ),
    ),
    time="join",
)

section(
    "kill a slot",
    "user code fails",
    "kill the driver",
    interval=300,
    mode="EXACTLY_ONCE",
    time="session",
    idles=True,
)
bug(
    "an idle channel holds event time back",
    (
        WatermarkValve,
        "change",
        lambda o: (
            lambda self, channel, status: (
                [] if status is WatermarkStatus.IDLE else o(self, channel, status)
            )
        ),
    ),
    width=3,
)
bug(
    "a channel that has ended holds event time back",
    (
        WatermarkValve,
        "end",
        lambda o: lambda self, channel: o(self, channel) if len(self._channels) == 1 else [],
    ),
    width=3,
)


def _active(original: Any) -> Any:
    def resume(self: Any, watermark: int, channels: Any) -> None:
        original(self, watermark, [replace(each, is_idle=False) for each in channels])

    return resume


bug(
    "idleness is not restored",
    (WatermarkValve, "resume", _active),
    (
        EventTime,
        "resume",
        lambda o: lambda self, state, *split: o(self, replace(state, is_idle=False), *split),
    ),
)
bug(
    "splits come back without their event time",
    (SourceOperator, "_timed", lambda o: lambda self, split: split),
)
