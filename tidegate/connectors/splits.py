"""Common parts of sources: splits known from the start, and readers of one split at a time."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from typing import Any

from tidegate.connectors.source import (
    InputStatus,
    Poll,
    SourceReader,
    SplitEnumerator,
    Undecodable,
    refuse,
)
from tidegate.stream.batch import Batch


def even_ranges(start: int, stop: int, parts: int) -> list[tuple[int, int]]:
    """Cut [start, stop) into at most `parts` ranges, none empty, whose lengths differ by one."""
    size, longer = divmod(max(stop - start, 0), parts)
    ranges = []
    for part in range(parts):
        end = start + size + (part < longer)
        if end > start:
            ranges.append((start, end))
        start = end
    return ranges


class KnownSplits(SplitEnumerator):
    """All splits are known from the start; split i goes to reader i modulo readers."""

    def __init__(self, find: Callable[[int], Sequence[Any]]) -> None:
        self._find = find
        self._waiting: list[Any] | None = None

    def next_splits(self, parallelism: int) -> dict[int, list[Any]]:
        if self._waiting is None:
            self._waiting = list(self._find(parallelism))
        waiting, self._waiting = self._waiting, []
        return deal(waiting, parallelism)

    def is_exhausted(self) -> bool:
        return self._waiting == []

    def add_back(self, splits: Sequence[Any]) -> None:
        self._waiting = [*(self._waiting or ()), *splits]

    def snapshot(self) -> Any:
        return None if self._waiting is None else list(self._waiting)

    def restore(self, state: Any) -> None:
        self._waiting = None if state is None else list(state)


def deal(splits: Sequence[Any], parallelism: int) -> dict[int, list[Any]]:
    """Distribute splits over readers in turn."""
    return {
        reader: list(hand) for reader in range(parallelism) if (hand := splits[reader::parallelism])
    }


class Cursor(ABC):
    """Reads one split forward."""

    undecodable: Undecodable = staticmethod(refuse)
    """Called for a record that cannot be decoded; may be replaced."""

    @abstractmethod
    def read(self, max_records: int) -> Batch | None:
        """The next records, at most `max_records`; None if none are available now.

        If a record cannot be read, the records before it are returned, and the next call raises.
        """

    @property
    @abstractmethod
    def is_done(self) -> bool:
        """Whether nothing is left to read; known at the latest after `read` returned None."""

    @abstractmethod
    def position(self) -> Any:
        """The split, starting after the last returned record."""

    def pending_records(self) -> int | None:
        return None

    def close(self) -> None:
        """Release all resources."""


class SequentialReader(SourceReader):
    """Reads its splits one after the other, in the order in which they were added."""

    def __init__(
        self,
        open_cursor: Callable[[Any], Cursor],
        key: Callable[[Any], Hashable] = lambda split: None,
    ) -> None:
        self._open_cursor = open_cursor
        self._key_of = key
        self._key: Hashable = None
        self._waiting: deque[Any] = deque()
        self._cursor: Cursor | None = None
        self._no_more = False

    def add_splits(self, splits: Sequence[Any]) -> None:
        self._waiting.extend(splits)

    def no_more_splits(self) -> None:
        self._no_more = True

    def poll(self, max_records: int) -> Poll:
        ended: tuple[Hashable, ...] = ()
        while True:
            if self._cursor is None:
                if not self._waiting:
                    return Poll(None, self._status(), ended=ended)
                self._cursor = self._open_cursor(self._waiting[0])
                self._key = self._key_of(self._waiting.popleft())
            batch = self._cursor.read(max_records)
            if self._cursor.is_done:
                self._cursor.close()
                self._cursor = None
                if self._key is not None:
                    ended = (*ended, self._key)
            if batch is not None:
                return Poll(batch, self._status(), self._key, ended)
            if self._cursor is not None:
                return Poll(None, InputStatus.NOTHING_AVAILABLE, ended=ended)

    def split_key(self, split: Any) -> Hashable:
        return self._key_of(split)

    @property
    def has_splits(self) -> bool:
        return self._cursor is not None or bool(self._waiting)

    def is_available(self) -> bool:
        return self.has_splits or self._no_more

    def available_in(self) -> float:
        """With splits, it is available, unless a subclass knows better: ask that one."""
        return 0.0 if self.has_splits else math.inf

    def snapshot(self) -> list[Any]:
        current = [] if self._cursor is None else [self._cursor.position()]
        return [*current, *self._waiting]

    def pending_records(self) -> int | None:
        return None if self._cursor is None else self._cursor.pending_records()

    def close(self) -> None:
        if self._cursor is not None:
            self._cursor.close()
            self._cursor = None

    def _status(self) -> InputStatus:
        if self.has_splits:
            return InputStatus.MORE_AVAILABLE
        return InputStatus.END_OF_INPUT if self._no_more else InputStatus.NOTHING_AVAILABLE
