"""Pending requests, and which of their results may be emitted next.

The mailbox adds and takes; the event loop only reports completed requests. Watermarks keep their
position: no result overtakes one, in either order.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from tidegate.core.errors import TidegateError
from tidegate.stream.elements import Watermark, WatermarkStatus


@dataclass(eq=False, slots=True)
class Request:
    """A record whose results are not emitted yet."""

    value: Any
    timestamp: int | None
    results: list[Any] = field(default_factory=list)
    failure: TidegateError | None = None
    is_done: bool = False
    segment: _BetweenWatermarks | None = None


Mark = Watermark | WatermarkStatus
"""A mark that results must not overtake."""
Held = Request | Mark


class HeldResults(ABC):
    """All requests of a subtask without emitted results, and the marks among them."""

    @abstractmethod
    def __len__(self) -> int:
        """How many requests there are."""

    @abstractmethod
    def add(self, element: Held) -> None:
        """Add the next element of the stream."""

    @abstractmethod
    def done(self, request: Request) -> None:
        """Mark a request as completed or failed; called by the event loop."""

    @abstractmethod
    def is_ready(self) -> bool:
        """Whether `take` would return something."""

    @abstractmethod
    def take(self) -> Iterator[Held]:
        """Remove and yield what may be emitted, in order."""

    @abstractmethod
    def in_flight(self) -> list[Held]:
        """Everything that was not taken, in stream order."""


class ResultsInOrder(HeldResults):
    """Emits results in the order of their records."""

    def __init__(self) -> None:
        self._queue: deque[Held] = deque()
        self._requests = 0

    def __len__(self) -> int:
        return self._requests

    def add(self, element: Held) -> None:
        self._queue.append(element)
        self._requests += isinstance(element, Request)

    def done(self, request: Request) -> None:
        request.is_done = True

    def is_ready(self) -> bool:
        if not self._queue:
            return False
        first = self._queue[0]
        return not isinstance(first, Request) or first.is_done

    def take(self) -> Iterator[Held]:
        while self.is_ready():
            element = self._queue.popleft()
            self._requests -= isinstance(element, Request)
            yield element

    def in_flight(self) -> list[Held]:
        return list(self._queue)


@dataclass(eq=False, slots=True)
class _BetweenWatermarks:
    """The requests between two watermarks."""

    requests: dict[Request, None] = field(default_factory=dict)
    done: deque[Request] = field(default_factory=deque)
    mark: Mark | None = None
    """The next watermark; None: more requests may follow."""


class ResultsAsTheyCome(HeldResults):
    """Emits results as soon as they arrive, but none overtakes a watermark."""

    def __init__(self) -> None:
        self._segments: deque[_BetweenWatermarks] = deque([_BetweenWatermarks()])
        self._done: deque[Request] = deque()
        """Of any segment; the event loop appends to it."""
        self._requests = 0

    def __len__(self) -> int:
        return self._requests

    def add(self, element: Held) -> None:
        last = self._segments[-1]
        if not isinstance(element, Request):
            last.mark = element
            self._segments.append(_BetweenWatermarks())
        else:
            element.segment = last
            last.requests[element] = None
            self._requests += 1

    def done(self, request: Request) -> None:
        self._done.append(request)

    def is_ready(self) -> bool:
        self._sort()
        first = self._segments[0]
        return bool(first.done) or (first.mark is not None and not first.requests)

    def take(self) -> Iterator[Held]:
        while self.is_ready():
            first = self._segments[0]
            while first.done:
                request = first.done.popleft()
                del first.requests[request]
                self._requests -= 1
                yield request
            if first.mark is not None and not first.requests:
                self._segments.popleft()
                yield first.mark

    def in_flight(self) -> list[Held]:
        held: list[Held] = []
        for segment in self._segments:
            held.extend(segment.requests)
            if segment.mark is not None:
                held.append(segment.mark)
        return held

    def _sort(self) -> None:
        while self._done:
            request = self._done.popleft()
            assert request.segment is not None
            request.segment.done.append(request)
