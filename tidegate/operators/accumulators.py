"""Accumulators of functions, merged over all subtasks, under Flink's names."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter as _Tally
from typing import Any


class FunctionAccumulator(ABC):
    """A value that every subtask adds to, and that is merged into one result.

    It counts from the start of an attempt and is not part of checkpoints, as in Flink.
    """

    @abstractmethod
    def add(self, value: Any) -> None: ...

    @abstractmethod
    def get_local_value(self) -> Any: ...

    @abstractmethod
    def reset_local(self) -> None: ...

    @abstractmethod
    def merge(self, other: Any) -> None:
        """Merge the value of another subtask."""


class LongCounter(FunctionAccumulator):
    """A sum of integers."""

    def __init__(self, value: int = 0) -> None:
        self._sum = value

    def add(self, value: int) -> None:
        self._sum += value

    def get_local_value(self) -> int:
        return self._sum

    def reset_local(self) -> None:
        self._sum = 0

    def merge(self, other: LongCounter) -> None:
        self._sum += other._sum


class IntCounter(LongCounter):
    """Like LongCounter: Python's integers have any size."""


class DoubleCounter(FunctionAccumulator):
    """A sum of numbers."""

    def __init__(self, value: float = 0.0) -> None:
        self._sum = value

    def add(self, value: float) -> None:
        self._sum += value

    def get_local_value(self) -> float:
        return self._sum

    def reset_local(self) -> None:
        self._sum = 0.0

    def merge(self, other: DoubleCounter) -> None:
        self._sum += other._sum


class ListAccumulator(FunctionAccumulator):
    """All added values."""

    def __init__(self) -> None:
        self._values: list[Any] = []

    def add(self, value: Any) -> None:
        self._values.append(value)

    def get_local_value(self) -> list[Any]:
        return list(self._values)

    def reset_local(self) -> None:
        self._values.clear()

    def merge(self, other: ListAccumulator) -> None:
        self._values += other._values


class Histogram(FunctionAccumulator):
    """Counts how often each integer was added."""

    def __init__(self) -> None:
        self._counts: _Tally[int] = _Tally()

    def add(self, value: int) -> None:
        self._counts[value] += 1

    def get_local_value(self) -> dict[int, int]:
        return dict(sorted(self._counts.items()))

    def reset_local(self) -> None:
        self._counts.clear()

    def merge(self, other: Histogram) -> None:
        self._counts.update(other._counts)
