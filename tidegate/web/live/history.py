"""Charts in bounded memory: the last minutes of a job finely, its last hours coarsely."""

from __future__ import annotations

import math
from array import array
from collections.abc import Mapping
from dataclasses import dataclass, field

FINE, COARSE = 1, 15
"""Seconds between two points."""
_SIZES = {FINE: 600, COARSE: 12 * 3600 // COARSE}
_NOTHING = float("nan")

Series = tuple[str, str]
"""The id of a vertex, "" for the job, and the name of the series."""


@dataclass(frozen=True, slots=True)
class Points:
    """Points in time, in seconds since the epoch, and the values of each series at them."""

    resolution: int
    times: list[float]
    series: dict[Series, list[float | None]]


class Ring:
    """The last values of series, which may be missing at some points."""

    def __init__(self, resolution: int, size: int) -> None:
        self._resolution = resolution
        self._size = size
        self._times = array("d", [0.0] * size)
        self._values: dict[Series, array[float]] = {}
        self._count = 0

    def add(self, time: float, values: Mapping[Series, float | None]) -> None:
        at = self._count % self._size
        self._times[at] = time
        for column in self._values.values():
            column[at] = _NOTHING
        for series, value in values.items():
            if value is None:
                continue
            if series not in self._values:
                self._values[series] = array("f", [_NOTHING] * self._size)
            self._values[series][at] = value
        self._count += 1

    def since(self, time: float) -> Points:
        first = max(0, self._count - self._size)
        places = [number % self._size for number in range(first, self._count)]
        later = [at for at in places if self._times[at] > time]
        series = {
            name: [None if math.isnan(column[at]) else column[at] for at in later]
            for name, column in self._values.items()
        }
        return Points(self._resolution, [self._times[at] for at in later], series)


@dataclass(slots=True)
class _Mean:
    total: float = 0.0
    count: int = 0


@dataclass(slots=True)
class JobHistory:
    """All charts of one job: every point for the fine ones, means for the coarse ones."""

    rings: dict[int, Ring] = field(
        default_factory=lambda: {step: Ring(step, size) for step, size in _SIZES.items()}
    )
    _means: dict[Series, _Mean] = field(default_factory=dict)
    _until: float | None = None

    def add(self, time: float, values: Mapping[Series, float | None]) -> None:
        self.rings[FINE].add(time, values)
        if self._until is None:
            self._until = time + COARSE
        for series, value in values.items():
            if value is not None:
                mean = self._means.setdefault(series, _Mean())
                mean.total += value
                mean.count += 1
        if time >= self._until:
            means = {series: mean.total / mean.count for series, mean in self._means.items()}
            self.rings[COARSE].add(time, means)
            self._means.clear()
            self._until = time + COARSE
