"""A source that a test opens and closes like a tap."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tests.programs import wait_until
from tidegate.connectors.source import (
    InputStatus,
    Poll,
    ReaderContext,
    Source,
    SourceReader,
    SplitEnumerator,
)
from tidegate.connectors.splits import KnownSplits
from tidegate.stream.batch import Batch


@dataclass(frozen=True, slots=True)
class TapSplit:
    """Which stream of the tap, and how far it was read."""

    stream: int
    position: int = 0


@dataclass(slots=True)
class _Flow:
    """What slots and test share of one tap."""

    limits: list[int]
    stops: list[int]
    reached: list[int]
    reads: list[int]
    lock: threading.Lock = field(default_factory=threading.Lock)


_flows: dict[str, _Flow] = {}


class Tap(Source):
    """Streams of records, one a split, that flow as far as the test lets them.

    Readers share this process with the test, so copies of a tap find each other by its name.
    """

    def __init__(self, *streams: Sequence[Any], is_open: bool = False) -> None:
        self._name = uuid.uuid4().hex
        self._streams = streams
        lengths = [len(stream) for stream in streams]
        nothing = [0] * len(streams)
        limits = lengths if is_open else nothing
        _flows[self._name] = _Flow([*limits], lengths, [*nothing], [*nothing])

    @property
    def flow(self) -> _Flow:
        return _flows[self._name]

    @property
    def streams(self) -> tuple[Sequence[Any], ...]:
        return self._streams

    def let(self, records: int, stream: int = 0) -> None:
        """Let so many records of a stream pass, counted from its beginning."""
        self.flow.limits[stream] = records

    def let_pass(self, records: int, stream: int = 0) -> None:
        """Let so many records of a stream pass, and wait until they are read."""
        self.let(records, stream)
        wait_until(lambda: self.reached(stream) == records)

    def open(self) -> None:
        """Let everything pass."""
        self.flow.limits[:] = self.flow.stops

    def end(self, stream: int = 0) -> int:
        """Let a stream end after the last record that was ever read; returns their number."""
        with self.flow.lock:
            stop = self.flow.reached[stream]
            self.flow.limits[stream] = self.flow.stops[stream] = stop
        return stop

    def reached(self, stream: int = 0) -> int:
        """How many records of a stream were read, each counted once."""
        return self.flow.reached[stream]

    @property
    def reads(self) -> int:
        """How many records were read, those counted again that were read again."""
        return sum(self.flow.reads)

    def create_enumerator(self) -> SplitEnumerator:
        count = len(self._streams)
        return KnownSplits(lambda parallelism: [TapSplit(i) for i in range(count)])

    def create_reader(self, context: ReaderContext) -> SourceReader:
        return _TapReader(self._streams, self.flow)


class _TapReader(SourceReader):
    def __init__(self, streams: Sequence[Sequence[Any]], flow: _Flow) -> None:
        self._streams = streams
        self._flow = flow
        self._splits: dict[int, TapSplit] = {}
        self._no_more = False

    def add_splits(self, splits: Sequence[TapSplit]) -> None:
        self._splits.update((split.stream, split) for split in splits)

    def no_more_splits(self) -> None:
        self._no_more = True

    def poll(self, max_records: int) -> Poll:
        flow, records = self._flow, []
        with flow.lock:
            for stream, split in list(self._splits.items()):
                room = max_records - len(records)
                stop = min(flow.limits[stream], flow.stops[stream], split.position + room)
                stop = max(stop, split.position)
                records += self._streams[stream][split.position : stop]
                flow.reads[stream] += stop - split.position
                flow.reached[stream] = max(flow.reached[stream], stop)
                self._splits[stream] = replace(split, position=stop)
                if stop >= flow.stops[stream]:
                    del self._splits[stream]
            status = InputStatus.NOTHING_AVAILABLE
            if self._can_go_on():
                status = InputStatus.MORE_AVAILABLE
            elif not self._splits and self._no_more:
                status = InputStatus.END_OF_INPUT
        return Poll(Batch.of_records(records) if records else None, status)

    def _can_go_on(self) -> bool:
        limits, stops = self._flow.limits, self._flow.stops
        return any(
            split.position < limits[stream] or split.position >= stops[stream]
            for stream, split in self._splits.items()
        )

    def pending_records(self) -> int:
        return sum(
            max(0, self._flow.limits[stream] - split.position)
            for stream, split in self._splits.items()
        )

    def is_available(self) -> bool:
        return self._can_go_on() or (not self._splits and self._no_more)

    def snapshot(self) -> list[TapSplit]:
        return list(self._splits.values())
