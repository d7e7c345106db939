"""Combines the watermarks of channels into the event time of a subtask. Pure.

    channel  watermark  status
    A              40   active   ┐
    B              25   active   ├── input 0: 25 ┐
    C              10   idle     ┘               ├── subtask: 25
    D              90   active   ─── input 1: 90 ┘

Idle channels hold nothing back. A channel that becomes active again counts once it has caught up.
Event time never goes back.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tidegate.core.ids import EdgeId, SubtaskIndex
from tidegate.protocol.packet import Channel
from tidegate.state.pointers import ChannelTime, TimeHandle
from tidegate.stream.elements import FINAL_WATERMARK, NO_WATERMARK, Watermark, WatermarkStatus

TimeElement = Watermark | WatermarkStatus


@dataclass(slots=True)
class _ChannelTime:
    watermark: int = NO_WATERMARK
    is_idle: bool = False
    is_aligned: bool = True
    """Whether it counts: it is active, and not behind what has been emitted."""


class WatermarkValve:
    """Combines the channels of one input, like Flink's StatusWatermarkValve.

    A channel leaves the valve when it ends or emits the final watermark. Otherwise, if the other
    channels are idle, the final watermark would make their later records late.
    """

    def __init__(self, channels: Iterable[Channel]) -> None:
        self._channels = {channel: _ChannelTime() for channel in channels}
        self.watermark = NO_WATERMARK
        """The last one emitted."""
        self.is_idle = False

    @property
    def idle_channels(self) -> int:
        return sum(time.is_idle for time in self._channels.values())

    def times(self) -> list[ChannelTime]:
        """The state of each channel."""
        return [
            ChannelTime(channel.edge, channel.source, time.watermark, time.is_idle)
            for channel, time in self._channels.items()
        ]

    def resume(self, watermark: int, channels: Iterable[ChannelTime]) -> None:
        """Resume from stored times; channels without one start at the watermark of the input."""
        self.watermark = watermark
        found = {Channel(EdgeId(each.edge), SubtaskIndex(each.source)): each for each in channels}
        if not found.keys().isdisjoint(self._channels):
            # The others had ended, and will report their end again.
            self._channels = {c: time for c, time in self._channels.items() if c in found}
        for channel, time in self._channels.items():
            if channel in found:
                time.watermark, time.is_idle = found[channel].watermark, found[channel].is_idle
                time.is_aligned = not time.is_idle and time.watermark >= watermark
            else:
                time.watermark = watermark
        self.is_idle = bool(self._channels) and all(t.is_idle for t in self._channels.values())

    def advance(self, channel: Channel, timestamp: int) -> list[TimeElement]:
        """Handle a channel's watermark; returns what the input emits, in order."""
        time = self._channels.get(channel)
        if time is None:
            return []
        if timestamp >= FINAL_WATERMARK:
            return self.end(channel)
        before = time.watermark
        if time.is_idle or timestamp <= before:
            return []
        time.watermark = timestamp
        if before > self.watermark:
            return []  # another channel holds event time back
        time.is_aligned = time.is_aligned or timestamp >= self.watermark
        return self._lowest()

    def change(self, channel: Channel, status: WatermarkStatus) -> list[TimeElement]:
        time = self._channels.get(channel)
        is_idle = status is WatermarkStatus.IDLE
        if time is None or time.is_idle == is_idle:
            return []
        time.is_idle = is_idle
        if is_idle:
            time.is_aligned = False
            return self._without(time.watermark)
        time.is_aligned = time.watermark >= self.watermark
        if not self.is_idle:
            return []
        self.is_idle = False
        return [WatermarkStatus.ACTIVE]

    def end(self, channel: Channel) -> list[TimeElement]:
        time = self._channels.pop(channel, None)
        if time is None:
            return []
        if not self._channels:
            self.watermark = FINAL_WATERMARK
            return [Watermark(FINAL_WATERMARK)]
        return [] if time.is_idle else self._without(time.watermark)

    def _without(self, watermark: int) -> list[TimeElement]:
        """Continue without a channel that had this watermark."""
        if not all(time.is_idle for time in self._channels.values()):
            return self._lowest() if watermark <= self.watermark else []
        known = [watermark, *(time.watermark for time in self._channels.values())]
        emitted = self._emit(max(known)) if watermark <= self.watermark else []
        self.is_idle = True
        return [*emitted, WatermarkStatus.IDLE]

    def _lowest(self) -> list[TimeElement]:
        aligned = [time.watermark for time in self._channels.values() if time.is_aligned]
        return self._emit(min(aligned)) if aligned else []

    def _emit(self, watermark: int) -> list[TimeElement]:
        if watermark <= self.watermark:
            return []
        self.watermark = watermark
        return [Watermark(watermark)]


class SubtaskTime:
    """Combines the inputs of a subtask: the lowest of those that are not idle."""

    def __init__(self, channels: Mapping[Channel, int]) -> None:
        self._inputs = dict(channels)
        self._valves = {
            index: WatermarkValve(c for c, i in channels.items() if i == index)
            for index in sorted(set(channels.values()))
        }
        self.watermark = NO_WATERMARK
        """The last one emitted."""
        self.is_idle = False

    @property
    def idle_channels(self) -> int:
        """How many channels hold nothing back."""
        return sum(valve.idle_channels for valve in self._valves.values())

    def handle(self) -> TimeHandle | None:
        """Event time for a checkpoint; None before the first watermark and after the final one.

        The final watermark is not stored: a changed program may resume ended inputs.
        """
        if self.watermark >= FINAL_WATERMARK:
            return None
        channels = [time for valve in self._valves.values() for time in valve.times()]
        has_news = any(time.watermark != NO_WATERMARK or time.is_idle for time in channels)
        if not has_news and self.watermark == NO_WATERMARK:
            return None
        return TimeHandle(
            received=self.watermark,
            inputs=tuple(
                (index, valve.watermark)
                for index, valve in self._valves.items()
                if valve.watermark < FINAL_WATERMARK
            ),
            channels=tuple(channels),
        )

    def resume(self, handle: TimeHandle) -> None:
        self.watermark = handle.received
        watermarks = dict(handle.inputs)
        for index, valve in self._valves.items():
            valve.resume(watermarks.get(index, NO_WATERMARK), handle.channels)
        self.is_idle = bool(self._valves) and all(v.is_idle for v in self._valves.values())

    def advance(self, channel: Channel, watermark: Watermark) -> list[TimeElement]:
        """Handle a channel's watermark; returns what the subtask emits, in order."""
        valve = self._valves[self._inputs[channel]]
        return self._combined(valve, valve.advance(channel, watermark.timestamp))

    def change(self, channel: Channel, status: WatermarkStatus) -> list[TimeElement]:
        valve = self._valves[self._inputs[channel]]
        return self._combined(valve, valve.change(channel, status))

    def end(self, channel: Channel) -> list[TimeElement]:
        valve = self._valves[self._inputs[channel]]
        return self._combined(valve, valve.end(channel))

    def _combined(self, valve: WatermarkValve, emitted: list[TimeElement]) -> list[TimeElement]:
        if len(self._valves) == 1:
            for element in emitted:
                self._note(element)
            return emitted
        found: list[TimeElement] = []
        lasting = [v for v in self._valves.values() if v.watermark < FINAL_WATERMARK]
        for element in emitted:
            # A watermark right before an input becomes idle counts.
            speaks = isinstance(element, Watermark)
            active = [v.watermark for v in lasting if not v.is_idle or (speaks and v is valve)]
            lowest = min(active, default=self.watermark if lasting else FINAL_WATERMARK)
            if lowest > self.watermark:
                found.append(Watermark(lowest))
                self.watermark = lowest
            if lasting and self.is_idle != (not active):
                found.append(WatermarkStatus.ACTIVE if active else WatermarkStatus.IDLE)
                self.is_idle = not active
        return found

    def _note(self, element: TimeElement) -> None:
        if isinstance(element, Watermark):
            self.watermark = element.timestamp
        else:
            self.is_idle = element is WatermarkStatus.IDLE
