"""`durable()`: adds a log to a source that cannot replay.

    outside ──▶ reader of the source ──▶ log ──▶ queue ──▶ poll
                └────────── own thread ─────────────┘

Records are logged before they are processed. A split holds the position in the log. On a restore,
the reader replays the log from there to its end, including segments that later, failed attempts
have written, and then continues the source.
"""

from __future__ import annotations

import math
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tidegate.connectors.durable.intake import Intake
from tidegate.connectors.durable.log import LogSplit
from tidegate.connectors.guarantee import Replay
from tidegate.connectors.source import (
    InputStatus,
    Poll,
    ReaderContext,
    Source,
    SourceReader,
    SplitEnumerator,
    refuse,
)
from tidegate.core.errors import ConfigError
from tidegate.core.ids import CheckpointId
from tidegate.types.typeinfo import TypeInformation


@dataclass(frozen=True, slots=True)
class FreshSplit:
    """A split of the wrapped source, as its enumerator found it."""

    split: Any


class DurableSource(Source):
    """The records of another source, read by one reader, each logged before it is processed."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.boundedness = source.boundedness

    def create_enumerator(self) -> SplitEnumerator:
        return _FreshSplits(self.source.create_enumerator())

    def create_reader(self, context: ReaderContext) -> SourceReader:
        return DurableReader(self.source.create_reader, context)

    def produced_type(self) -> TypeInformation | None:
        return self.source.produced_type()

    def replay(self) -> Replay:
        return Replay(True, "replays its log of received records")

    def max_readers(self) -> int:
        return 1

    def durable(self) -> Source:
        return self


class _FreshSplits(SplitEnumerator):
    """The enumerator of the wrapped source; all splits go to one reader."""

    def __init__(self, enumerator: SplitEnumerator) -> None:
        self._enumerator = enumerator

    def open(self) -> None:
        self._enumerator.context = self.context
        self._enumerator.open()

    def next_splits(self, parallelism: int) -> dict[int, list[Any]]:
        found = self._enumerator.next_splits(1)
        return {reader: [FreshSplit(split) for split in splits] for reader, splits in found.items()}

    def is_exhausted(self) -> bool:
        return self._enumerator.is_exhausted()

    def add_back(self, splits: Sequence[Any]) -> None:
        self._enumerator.add_back([fresh.split for fresh in splits])

    def snapshot(self) -> Any:
        return self._enumerator.snapshot()

    def restore(self, state: Any) -> None:
        self._enumerator.restore(state)

    def close(self) -> None:
        self._enumerator.close()


class DurableReader(SourceReader):
    """Returns what the intake has logged.

    `create` makes the reader of the wrapped source, which runs on the thread of the intake.
    """

    def __init__(
        self, create: Callable[[ReaderContext], SourceReader], context: ReaderContext
    ) -> None:
        self._context = context
        news = threading.Event()
        inner = replace(context, is_logged=True, undecodable=refuse, wake=news.set)
        self._intake = Intake(create(inner), context, news)
        self._segment, self._index = 0, 0
        self._completed: deque[int] = deque(maxlen=context.retained_checkpoints)
        """The first segment that each of the latest completed checkpoints needs."""

    def open(self) -> None:
        if self._context.directory is None:
            raise ConfigError(
                "execution.checkpointing.dir",
                None,
                "durable() keeps its log with the checkpoints: enable them (enable_checkpointing), "
                "and set a directory for them",
            )
        self._intake.open(self._context.directory)

    def add_splits(self, splits: Sequence[LogSplit | FreshSplit]) -> None:
        for split in splits:
            if isinstance(split, FreshSplit):
                self._intake.add(split.split)
            else:
                self._intake.go_on_from(split)
        self._find_start()

    def no_more_splits(self) -> None:
        self._intake.no_more()
        self._find_start()

    def _find_start(self) -> None:
        """A restored split is added before all others, so it is known by now."""
        if not self._intake.has_start:
            self._segment, self._index = self._intake.find_start()

    def poll(self, max_records: int) -> Poll:
        self._intake.start()
        logged = self._intake.first()
        if logged is None:
            return Poll(None, self._intake.status())
        if logged.number != self._segment:
            self._segment, self._index = logged.number, 0
        # A restored position may be past the first records of its segment.
        start = min(self._index - logged.first, len(logged.batch))
        stop = min(start + max_records, len(logged.batch))
        self._index = max(self._index, logged.first + stop)
        if stop == len(logged.batch):
            self._intake.done_with_first()
            following = self._intake.first()
            if following is None or following.number != logged.number:
                self._segment, self._index = logged.number + 1, 0
        return Poll(logged.batch.slice(start, stop), InputStatus.MORE_AVAILABLE)

    def is_available(self) -> bool:
        return self._intake.is_available()

    def available_in(self) -> float:
        return math.inf

    def snapshot(self) -> list[LogSplit]:
        return [replace(self._intake.end(), segment=self._segment, index=self._index)]

    def files_of(self, splits: Sequence[LogSplit]) -> dict[str, str]:
        return {
            path: url for split in splits for path, url in self._intake.files_from(split.segment)
        }

    def halt(self) -> None:
        self._intake.halt()

    def go_on(self) -> None:
        self._intake.go_on()

    def pending_records(self) -> int:
        return self._intake.queued

    def notify_complete(self, checkpoint_id: CheckpointId, splits: Sequence[LogSplit]) -> None:
        self._completed += [split.segment for split in splits]
        # Until then, checkpoints may be retained that this attempt knows nothing of.
        if len(self._completed) == self._completed.maxlen:
            self._intake.delete_before(min(self._completed))

    def close(self) -> None:
        self._intake.close()
