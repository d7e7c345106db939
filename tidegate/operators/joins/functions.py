"""The functions of joins, and how they run on the windows of two streams."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Generic, TypeVar

from tidegate.operators.functions import Function, bound_method
from tidegate.operators.runtime_context import RuntimeContext
from tidegate.operators.windows.functions import WindowFunction

IN1 = TypeVar("IN1")
IN2 = TypeVar("IN2")
OUT = TypeVar("OUT")


class JoinFunction(Function, Generic[IN1, IN2, OUT]):
    """One result for every pair of records."""

    @abstractmethod
    def join(self, first: IN1, second: IN2) -> OUT:
        """The result for a pair of records."""


class FlatJoinFunction(Function, Generic[IN1, IN2, OUT]):
    """Any number of results for every pair of records."""

    @abstractmethod
    def join(self, first: IN1, second: IN2) -> Iterable[OUT] | None:
        """The results for a pair of records, as an iterable."""


class CoGroupFunction(Function, Generic[IN1, IN2, OUT]):
    """Any number of results for all records of a key and window, of both streams."""

    @abstractmethod
    def co_group(self, first: Sequence[IN1], second: Sequence[IN2]) -> Iterable[OUT] | None:
        """The results for all records of both streams in a window, for one key."""


class ProcessJoinFunction(Function, Generic[IN1, IN2, OUT]):
    """Any number of results for every pair of records within the interval."""

    class Context(ABC):
        """Valid only during the call it is given to; milliseconds since the epoch."""

        @abstractmethod
        def get_left_timestamp(self) -> int: ...

        @abstractmethod
        def get_right_timestamp(self) -> int: ...

        @abstractmethod
        def get_timestamp(self) -> int:
            """The timestamp of the results: the later of both."""

    @abstractmethod
    def process_element(
        self, left: IN1, right: IN2, ctx: ProcessJoinFunction.Context
    ) -> Iterable[OUT] | None:
        """Process a pair of records."""


class TwoSided(WindowFunction[Any, Any, Any, Any]):
    """A function of two streams, on windows of (0 or 1 for the stream, record)."""

    def __init__(self, function: Any) -> None:
        self.wrapped = function
        self._method()

    @abstractmethod
    def _method(self) -> Callable[[Any, Any], Any]:
        """The method to call; raises TypeError if the function does not fit."""

    def open(self, runtime_context: RuntimeContext) -> None:
        if isinstance(self.wrapped, Function):
            self.wrapped.open(runtime_context)

    def close(self) -> None:
        if isinstance(self.wrapped, Function):
            self.wrapped.close()


class CoGroupedWindows(TwoSided):
    """Calls a CoGroupFunction for each firing."""

    def _method(self) -> Callable[[Any, Any], Any]:
        return bound_method(self.wrapped, CoGroupFunction, "co_group")

    def apply(self, key: Any, window: Any, inputs: Iterable[Any]) -> Any:
        return self._method()(*_sides(inputs))


class JoinedWindows(TwoSided):
    """Calls a join function for each pair of records of a firing."""

    def _method(self) -> Callable[[Any, Any], Any]:
        kind = FlatJoinFunction if isinstance(self.wrapped, FlatJoinFunction) else JoinFunction
        return bound_method(self.wrapped, kind, "join")

    def apply(self, key: Any, window: Any, inputs: Iterable[Any]) -> Any:
        join, (first, second) = self._method(), _sides(inputs)
        if isinstance(self.wrapped, FlatJoinFunction):
            for one in first:
                for other in second:
                    yield from join(one, other) or ()
        else:
            for one in first:
                for other in second:
                    yield join(one, other)


def _sides(inputs: Iterable[Any]) -> tuple[list[Any], list[Any]]:
    sides: tuple[list[Any], list[Any]] = [], []
    for side, record in inputs:
        sides[side].append(record)
    return sides
