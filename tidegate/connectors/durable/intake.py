"""The thread of a durable source: it reads the log to its end, then appends to it."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple

from tidegate.connectors.durable.log import DurableLog, LogSplit, Segment, path_of_segment
from tidegate.connectors.source import InputStatus, ReaderContext, SourceReader
from tidegate.core.errors import StorageError
from tidegate.stream.batch import Batch

_log = logging.getLogger(__name__)
_SEGMENT_RECORDS: Final = 50_000
_QUEUED_RECORDS: Final = 200_000
"""How many records are read ahead of processing."""
_IDLE_SECONDS: Final = 0.005
_LONGEST_SLEEP: Final = 1.0
_JOIN_SECONDS: Final = 10.0


class LoggedBatch(NamedTuple):
    """Records of a segment in memory, waiting to be processed."""

    number: int
    first: int
    """The index of the first of them in the segment."""
    batch: Batch


class Intake:
    """Reads the log to its end, then appends the records of the source.

    `news` is set when the reader of the source has called `wake`.
    """

    def __init__(self, inner: SourceReader, context: ReaderContext, news: threading.Event) -> None:
        self._inner = inner
        self._context = context
        self._news = news
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._queue: deque[LoggedBatch] = deque()
        self.queued = 0
        self._fresh: list[Any] = []
        self._no_more = False
        self._is_opened = False
        self._is_over = False
        self._failure: BaseException | None = None
        self._restored: LogSplit | None = None
        self._to_replay: list[int] = []
        self._end = LogSplit(0, 0)
        """Where the source continues after the log; its position in the log is unused."""
        self._unneeded_before = 0
        self.has_start = False
        self._taking_in = threading.Lock()
        self._is_halted = False

    # --- called by the reader -------------------------------------------------------------------

    def open(self, directory: str) -> None:
        self._logged = DurableLog(directory)
        self._oldest = min(self._logged.numbers(), default=0)
        self._is_opened = True
        self._inner.open()

    def go_on_from(self, split: LogSplit) -> None:
        """Start at the position of a checkpoint, possibly of another job."""
        self._fresh += split.fresh
        if self._context.origin is None:
            self._restored = split
        elif not self._logged.numbers():  # otherwise, an earlier attempt has adopted it
            self._adopt(split, DurableLog(self._context.origin))

    def _adopt(self, split: LogSplit, other: DurableLog) -> None:
        """Copy the rest of another job's log as the first segment of this one."""
        numbers = other.numbers_from(split.segment, _needed(split))
        segments = [other.read(number) for number in numbers]
        read, batches = split.index, list[Batch]()
        for segment in segments:
            for batch in segment.batches(self._context.format):
                batches.append(batch.slice(min(read, len(batch)), len(batch)))
                read = max(read - len(batch), 0)
        live, assigned = split.live, split.assigned
        if numbers and numbers[-1] != split.as_of:
            live, assigned = segments[-1].live, segments[-1].assigned
        self._logged.append(0, Segment.of(_joined(batches), live, assigned))

    def add(self, split: Any) -> None:
        with self._lock:
            self._fresh.append(split)
        self._news.set()

    def no_more(self) -> None:
        self._no_more = True
        self._news.set()

    def find_start(self) -> tuple[int, int]:
        """The segment and the record to start reading from."""
        self.has_start = True
        restored = self._restored
        if restored is None:
            start = self._oldest, 0
            self._to_replay = self._logged.numbers_from(self._oldest, None)
        else:
            start = restored.segment, restored.index
            self._to_replay = self._logged.numbers_from(restored.segment, _needed(restored))
            self._end = replace(restored, fresh=())
        return start

    def start(self) -> None:
        """Start reading on first demand: a job that only ends reads no records."""
        if self._thread is None and self.has_start:
            name = f"log of {self._context.operator_name}"
            self._thread = threading.Thread(target=self._run, name=name, daemon=True)
            self._thread.start()

    def halt(self) -> None:
        """Stop logging; everything read so far is in the log."""
        with self._taking_in:
            self._is_halted = True

    def go_on(self) -> None:
        self._is_halted = False
        self._news.set()

    def files_from(self, number: int) -> list[tuple[str, str]]:
        """The path and URL of every segment from this one to the end of the log."""
        with self._lock:
            last = max(self._to_replay, default=-1)
            last = last if self._end.as_of is None else max(last, self._end.as_of)
        return [(path_of_segment(n), self._logged.url(n)) for n in range(number, last + 1)]

    def first(self) -> LoggedBatch | None:
        """The next batch, if there is one."""
        with self._lock:
            return self._queue[0] if self._queue else None

    def done_with_first(self) -> None:
        with self._lock:
            self.queued -= len(self._queue.popleft().batch)

    def status(self) -> InputStatus:
        """What to expect when nothing is queued; raises the failure of the intake."""
        with self._lock:
            if self._queue:
                return InputStatus.MORE_AVAILABLE
            if self._failure is not None:
                raise self._failure
            return InputStatus.END_OF_INPUT if self._is_over else InputStatus.NOTHING_AVAILABLE

    def is_available(self) -> bool:
        is_to_start = self.has_start and self._thread is None
        return is_to_start or bool(self._queue) or self._is_over or self._failure is not None

    def end(self) -> LogSplit:
        """Where the source continues; the caller knows how far the log was read."""
        with self._lock:
            return replace(self._end, fresh=tuple(self._fresh))

    def delete_before(self, number: int) -> None:
        """Delete segments that no checkpoint needs any longer."""
        self._unneeded_before = max(self._unneeded_before, number)
        self._news.set()

    def close(self) -> None:
        self._stop.set()
        self._news.set()
        if self._thread is not None:
            self._thread.join(_JOIN_SECONDS)
        if self._is_opened:
            self._inner.close()

    # --- on the thread --------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            if self._replay():
                self._go_live()
        except BaseException as error:
            with self._lock:
                self._failure = error
            self._context.wake()

    def _replay(self) -> bool:
        """Replay the log after the checkpoint, or all of it without one; False if stopped."""
        if self._to_replay:
            _log.info(
                "source %r replays %d segment(s) of its log, starting at %s",
                self._context.operator_name,
                len(self._to_replay),
                self._logged.location_of(self._to_replay[0]),
            )
        for number in self._to_replay:
            if not self._wait_for_room():
                return False
            segment = self._logged.read(number)
            with self._lock:
                if self._end.as_of is None or number > self._end.as_of:
                    self._end = LogSplit(0, 0, segment.live, number, segment.assigned)
            self._enqueue(number, segment.batches(self._context.format))
        return True

    def _go_live(self) -> None:
        if self._end.live:
            self._inner.add_splits(self._end.live)
        told_all = False
        is_wanted = True
        while is_wanted and not self._is_over:
            self._news.clear()
            self._truncate()
            no_more = self._no_more
            self._add_fresh()
            if no_more and not told_all:
                told_all = True
                self._inner.no_more_splits()
            is_wanted = self._wait_for_room()
            # Even while the reader is being closed: records that have arrived must not be lost.
            with self._taking_in:
                is_available = not self._is_halted and self._inner.is_available()
                has_come = is_available and self._take_in()
            if is_wanted and not has_come:
                self._news.wait(_IDLE_SECONDS if is_available else self._quiet_seconds())

    def _quiet_seconds(self) -> float:
        """How long to wait for news from a source that has nothing."""
        if self._is_halted:
            return _LONGEST_SLEEP
        return min(max(self._inner.available_in(), _IDLE_SECONDS), _LONGEST_SLEEP)

    def _add_fresh(self) -> None:
        """Add splits that the log does not contain; it knows the positions of the others."""
        with self._lock:
            fresh, self._fresh = self._fresh, []
            new = [split for split in fresh if split not in self._end.assigned]
            self._end = replace(
                self._end,
                assigned=(*self._end.assigned, *new),
                live=(*self._end.live, *new),
            )
        if new:
            self._inner.add_splits(new)

    def _take_in(self) -> bool:
        """Log what has arrived as one segment; False if there is nothing."""
        batches: list[Batch] = []
        failure: BaseException | None = None
        status = InputStatus.MORE_AVAILABLE
        while status is InputStatus.MORE_AVAILABLE and sum(map(len, batches)) < _SEGMENT_RECORDS:
            try:
                poll = self._inner.poll(_SEGMENT_RECORDS)
            except BaseException as error:
                failure = error  # the records before it count
                break
            status = poll.status
            if poll.batch is not None:
                batches.append(poll.batch)
        batches = _joined(batches)
        is_over = status is InputStatus.END_OF_INPUT
        if batches or is_over:
            self._append(batches)
        if failure is not None:
            raise failure
        with self._lock:
            self._is_over = is_over
        if is_over:
            self._context.wake()
        return bool(batches)

    def _append(self, batches: Sequence[Batch]) -> None:
        live = tuple(self._inner.snapshot())
        number = 0 if self._end.as_of is None else self._end.as_of + 1
        self._logged.append(number, Segment.of(batches, live, self._end.assigned))
        with self._lock:
            self._end = LogSplit(0, 0, live, number, self._end.assigned)
        self._inner.notify_logged()
        self._enqueue(number, batches)

    def _enqueue(self, number: int, batches: Iterable[Batch]) -> None:
        """Queue a whole segment at once: the reader is done with it when it sees the next one."""
        with self._lock:
            first = 0
            for batch in batches:
                if len(batch):
                    self._queue.append(LoggedBatch(number, first, batch))
                    first += len(batch)
            self.queued += first
        self._context.wake()

    def _wait_for_room(self) -> bool:
        """Wait until the queue has room; False if stopped."""
        while self.queued >= _QUEUED_RECORDS and not self._stop.is_set():
            self._stop.wait(_IDLE_SECONDS)
        return not self._stop.is_set()

    def _truncate(self) -> None:
        while self._oldest < self._unneeded_before and self._context.permit.is_valid():
            try:
                self._logged.delete(self._oldest)
            except StorageError as error:
                _log.warning("an obsolete segment could not be deleted: %s", error)
                self._unneeded_before = 0
                return
            self._oldest += 1


def _joined(batches: Sequence[Batch]) -> list[Batch]:
    """All records in their logged form."""
    for batch in batches:
        if batch.format is not None:
            _ = batch.columns
    return Batch.joined(batches)


def _needed(split: LogSplit) -> int | None:
    """The last segment that must exist, if any."""
    return split.as_of if split.as_of is not None and split.as_of >= split.segment else None
