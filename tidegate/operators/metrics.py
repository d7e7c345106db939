"""Metrics of user code, under PyFlink's names."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import TypeVar

from tidegate.core.clock import Clock, SystemClock


class Metric:
    """Base of the metrics."""


class Counter(Metric):
    """A counter."""

    def __init__(self) -> None:
        self._count = 0

    def inc(self, n: int = 1) -> None:
        self._count += n

    def dec(self, n: int = 1) -> None:
        self._count -= n

    def get_count(self) -> int:
        return self._count


class Meter(Metric):
    """Counts events, in total and per second over a recent time span."""

    def __init__(self, time_span_in_seconds: int, clock: Clock) -> None:
        self._span = time_span_in_seconds
        self._clock = clock
        self._count = 0
        self._seconds: deque[tuple[int, int]] = deque()

    def mark_event(self, value: int = 1) -> None:
        self._count += value
        second = int(self._clock.monotonic())
        if self._seconds and self._seconds[-1][0] == second:
            value += self._seconds.pop()[1]
        self._seconds.append((second, value))
        self._forget_before(second - self._span)

    def get_count(self) -> int:
        return self._count

    def get_rate(self) -> float:
        self._forget_before(int(self._clock.monotonic()) - self._span)
        return sum(events for _, events in self._seconds) / self._span

    def _forget_before(self, second: int) -> None:
        while self._seconds and self._seconds[0][0] <= second:
            self._seconds.popleft()


class Distribution(Metric):
    """Count, sum, minimum and maximum of the values it was updated with."""

    def __init__(self) -> None:
        self.count = 0
        self.sum = 0.0
        self.min = float("inf")
        self.max = float("-inf")

    def update(self, value: float) -> None:
        self.count += 1
        self.sum += value
        self.min = min(self.min, value)
        self.max = max(self.max, value)


_Metric = TypeVar("_Metric", Counter, Meter, Distribution)


class MetricGroup:
    """Metrics by name; the same name returns the same metric."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._groups: dict[str, MetricGroup] = {}
        self._metrics: dict[str, Counter | Meter | Distribution | Callable[[], float]] = {}

    def add_group(self, name: str, extra: str | None = None) -> MetricGroup:
        group = self._groups.setdefault(name, MetricGroup(self._clock))
        return group if extra is None else group.add_group(extra)

    def counter(self, name: str) -> Counter:
        return self._get(name, Counter, Counter)

    def gauge(self, name: str, obj: Callable[[], float]) -> None:
        self._metrics[name] = obj

    def meter(self, name: str, time_span_in_seconds: int = 60) -> Meter:
        return self._get(name, Meter, lambda: Meter(time_span_in_seconds, self._clock))

    def distribution(self, name: str) -> Distribution:
        return self._get(name, Distribution, Distribution)

    def readings(self) -> Iterator[tuple[str, float]]:
        """Every number below this group, with its name in dotted form.

        Gauges and threads of functions may register metrics meanwhile.
        """
        for name, metric in self._metrics.copy().items():
            match metric:
                case Counter():
                    yield name, metric.get_count()
                case Meter():
                    yield f"{name}.count", metric.get_count()
                    yield f"{name}.rate", metric.get_rate()
                case Distribution():
                    yield f"{name}.count", metric.count
                    if metric.count:
                        yield f"{name}.sum", metric.sum
                        yield f"{name}.min", metric.min
                        yield f"{name}.max", metric.max
                case _:
                    with suppress(Exception, SystemExit):  # a failing gauge has no value
                        yield name, float(metric())
        for name, group in self._groups.copy().items():
            yield from ((f"{name}.{inner}", value) for inner, value in group.readings())

    def _get(self, name: str, kind: type[_Metric], make: Callable[[], _Metric]) -> _Metric:
        metric = self._metrics.get(name)
        if metric is None:
            metric = self._metrics[name] = make()
        if not isinstance(metric, kind):
            raise ValueError(f"metric {name!r} is a {type(metric).__name__} already")
        return metric
