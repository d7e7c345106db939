"""Merges the channels of one subtask into one order that respects barriers.

Batches on an open channel can bypass the gate:

    index = gate.open_input(channel)       # one look-up per packet: only control elements change it
    if index is not None and type(element) is Batch:
        operator.process(element, index)
    else:
        for delivery in gate.feed(channel, element, now, size):
            ...
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tidegate.core.errors import ProtocolViolation
from tidegate.core.ids import CheckpointId, EdgeId, SubtaskIndex
from tidegate.protocol.alignment import (
    Abort,
    Alignment,
    Block,
    Complete,
    Logged,
    Release,
    Ruling,
)
from tidegate.protocol.packet import Channel
from tidegate.protocol.watermark_valve import SubtaskTime, TimeElement
from tidegate.state.pointers import TimeHandle
from tidegate.stream.batch import Batch
from tidegate.stream.elements import (
    Barrier,
    EndOfInput,
    StreamElement,
    Watermark,
    WatermarkStatus,
)

REQUESTS = Channel(EdgeId(-1), SubtaskIndex(0))
"""The only channel of a source: it carries the barriers of the driver's step requests."""


@dataclass(frozen=True, slots=True)
class Records:
    """Process this batch as part of the given input."""

    input_index: int
    batch: Batch


@dataclass(frozen=True, slots=True)
class TakeSnapshot:
    """Take a snapshot of everything processed so far, then forward the barrier."""

    barrier: Barrier
    alignment_seconds: float
    bytes_buffered: int
    ended_inputs: frozenset[int] = frozenset()
    """Inputs that ended before the barrier, stored for the restored gate."""
    is_whole: bool = True
    """If False, `InFlight` follows with the rest of the snapshot."""
    time: TimeHandle | None = None
    """The event time of the channels, stored in the snapshot."""


@dataclass(frozen=True, slots=True)
class InFlight:
    """What arrived ahead of the barrier of an unaligned checkpoint on slower channels."""

    checkpoint_id: CheckpointId
    elements: tuple[tuple[Channel, StreamElement], ...]


@dataclass(frozen=True, slots=True)
class SnapshotAborted:
    """The gate aborted a checkpoint by itself: decline it to the coordinator."""

    checkpoint_id: CheckpointId
    reason: str


@dataclass(frozen=True, slots=True)
class AdvanceWatermark:
    """Event time has reached this watermark on all channels."""

    watermark: Watermark


@dataclass(frozen=True, slots=True)
class ChangeStatus:
    """All channels have become idle, or one of them is active again."""

    status: WatermarkStatus


@dataclass(frozen=True, slots=True)
class InputEnded:
    """No records follow on any channel of this input."""

    input_index: int
    is_last: bool = False
    """All other inputs have ended, too: no records follow at all, but barriers may."""


Delivery = (
    Records
    | TakeSnapshot
    | InFlight
    | SnapshotAborted
    | AdvanceWatermark
    | ChangeStatus
    | InputEnded
)


class InputGate:
    """The input gate of a subtask; `channels` maps every channel to the input it feeds.

    Inputs that had ended in the restored snapshot (`ended_inputs`) are ended from the start and
    deliver no second `InputEnded`.
    """

    def __init__(
        self,
        channels: Mapping[Channel, int],
        *,
        ended_inputs: Iterable[int] = (),
        time: TimeHandle | None = None,
    ) -> None:
        self._inputs = dict(channels)
        self._ended_inputs = set(ended_inputs)
        live = {c: index for c, index in channels.items() if index not in self._ended_inputs}
        self._open = dict(live)
        self._live = set(live)
        self._alignment: Alignment[Channel] = Alignment(live)
        self._waiting: dict[Channel, deque[tuple[StreamElement, int]]] = {}
        self._released: deque[Channel] = deque()
        self._time = SubtaskTime(live)
        if time is not None:
            self._time.resume(time)
        self._bytes_buffered = 0
        self._logs: dict[CheckpointId, list[tuple[Channel, StreamElement]]] = {}
        self._deliveries: list[Delivery] = []

    def open_input(self, channel: Channel) -> int | None:
        """The input that may process batches of this channel directly; None: `feed` them."""
        return self._open.get(channel)

    @property
    def watermark(self) -> int:
        """The event time that all channels have reached."""
        return self._time.watermark

    @property
    def idle_channels(self) -> int:
        """How many channels do not hold back the watermark."""
        return self._time.idle_channels

    @property
    def is_idle(self) -> bool:
        """Whether all channels are idle."""
        return self._time.is_idle

    @property
    def bytes_waiting(self) -> int:
        """The size of what blocked channels currently hold back."""
        return sum(size for fifo in self._waiting.values() for _, size in fifo)

    def feed(
        self, channel: Channel, element: StreamElement, now: float, size: int = 0
    ) -> list[Delivery]:
        """Take the next element of a channel; carry out the deliveries in order."""
        if channel in self._waiting:
            self._waiting[channel].append((element, size))
            self._bytes_buffered += size
            return []
        if channel not in self._inputs:
            raise ProtocolViolation(f"{channel} is not among the channels {sorted(self._inputs)}")
        self._handle(channel, element, now)
        return self._drain(now)

    def abort(self, checkpoint_id: CheckpointId, now: float) -> list[Delivery]:
        """Release what waits for a checkpoint that the coordinator aborted."""
        rulings = self._alignment.abort(checkpoint_id)
        self._forget_log(checkpoint_id)
        self._apply(rulings, now)
        return self._drain(now)

    def _drain(self, now: float) -> list[Delivery]:
        """Deliver from released channels, each up to the barrier that blocks it again."""
        while self._released:
            channel = self._released.popleft()
            fifo = self._waiting.pop(channel)
            self._reopen(channel)
            while fifo and channel not in self._waiting:
                element, _ = fifo.popleft()
                self._handle(channel, element, now)
            if fifo:
                self._waiting[channel] = fifo
                self._bytes_buffered += sum(size for _, size in fifo)
        deliveries, self._deliveries = self._deliveries, []
        return deliveries

    def _handle(self, channel: Channel, element: StreamElement, now: float) -> None:
        if isinstance(element, Batch | Watermark | WatermarkStatus):
            for checkpoint_id in self._alignment.logged_by(channel):
                logged = element.branched() if isinstance(element, Batch) else element
                self._logs[checkpoint_id].append((channel, logged))
        if isinstance(element, Barrier):
            self._apply(self._alignment.barrier(channel, element, now), now)
        elif isinstance(element, Watermark | WatermarkStatus):
            self._time_moves(channel, element)
        elif isinstance(element, EndOfInput):
            self._end(channel, now)
        elif channel in self._live:
            self._deliveries.append(Records(self._inputs[channel], element))
        else:
            raise ProtocolViolation(f"records arrived on {channel} after its end of input")

    def _apply(self, rulings: list[Ruling[Channel]], now: float) -> None:
        for ruling in rulings:
            match ruling:
                case Block(channel):
                    self._open.pop(channel, None)
                    self._waiting[channel] = deque()
                case Release(channels):
                    self._released.extend(channels)
                    self._bytes_buffered = 0
                case Complete(barrier, first_barrier_at, owed):
                    seconds, ended = now - first_barrier_at, frozenset(self._ended_inputs)
                    self._deliveries.append(
                        TakeSnapshot(
                            barrier,
                            seconds,
                            self._bytes_buffered,
                            ended,
                            not owed,
                            self._time.handle(),
                        )
                    )
                    if owed:
                        self._logs[barrier.checkpoint_id] = []
                        for channel in owed:
                            self._open.pop(channel, None)
                case Logged(checkpoint_id):
                    self._deliveries.append(
                        InFlight(checkpoint_id, tuple(self._logs[checkpoint_id]))
                    )
                    self._forget_log(checkpoint_id)
                case Abort(checkpoint_id, reason):
                    self._forget_log(checkpoint_id)
                    self._deliveries.append(SnapshotAborted(checkpoint_id, reason))

    def _forget_log(self, checkpoint_id: CheckpointId) -> None:
        if self._logs.pop(checkpoint_id, None) is not None:
            for channel in self._live:
                self._reopen(channel)

    def _reopen(self, channel: Channel) -> None:
        """Let batches bypass the gate unless they have to wait or be logged."""
        if channel not in self._waiting and not self._alignment.logged_by(channel):
            self._open[channel] = self._inputs[channel]

    def _time_moves(self, channel: Channel, element: Watermark | WatermarkStatus) -> None:
        if channel not in self._live:
            return
        if isinstance(element, Watermark):
            self._deliver_time(self._time.advance(channel, element))
        else:
            self._deliver_time(self._time.change(channel, element))

    def _deliver_time(self, elements: list[TimeElement]) -> None:
        self._deliveries.extend(
            AdvanceWatermark(element) if isinstance(element, Watermark) else ChangeStatus(element)
            for element in elements
        )

    def _end(self, channel: Channel, now: float) -> None:
        if channel not in self._live:
            return
        self._live.remove(channel)
        self._open.pop(channel, None)
        self._deliver_time(self._time.end(channel))
        index = self._inputs[channel]
        if not any(self._inputs[other] == index for other in self._live):
            self._ended_inputs.add(index)
            self._deliveries.append(InputEnded(index, is_last=not self._live))
        self._apply(self._alignment.ended(channel), now)
