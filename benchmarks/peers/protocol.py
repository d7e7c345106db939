"""What the harness asks of a peer's program, and what it answers. Standard library only.

The program is started as `python -m benchmarks.peers.<module> '<order as JSON>'`, works, and
prints its result as one line of JSON. Anything else on its output is ignored, its errors are kept
for the message when there is no result.
"""

from __future__ import annotations

import json
import os
import platform
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

RESULT_MARK = "benchmark_result"
TAIL = 0.97
"""Behind this share of a bounded run parallel sources run dry one after the other."""


@dataclass(frozen=True)
class Order:
    """One measurement to make.

    Peers that must know their size beforehand process `records`; peers that can stop at will
    warm up, measure for `seconds` and stop. Both report how many records they really processed.
    """

    workload: str
    keys: int
    records: int
    seconds: float
    warm_seconds: float
    warm_limit: float
    parallelism: int
    commit_seconds: float
    batch_records: int
    rate: int
    scratch: str
    options: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def from_arguments(cls) -> Order:
        return cls(**json.loads(sys.argv[1]))


@dataclass(frozen=True)
class Check:
    """A statement the harness verifies: so many records gave this checksum."""

    what: str
    records: int
    checksum: float


@dataclass
class Result:
    """The answer to an order.

    `samples` are pairs of wall time and records done so far; the harness computes throughput from
    them and from nothing else, and cuts CPU time at the same moments.
    """

    records: int
    checks: list[Check]
    samples: list[tuple[float, int]] = field(default_factory=list)
    bounded: bool = True
    commits: int | None = None
    commit_interval: float | None = None
    emitted: int | None = None
    measures: dict[str, float] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    versions: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Window:
    """The steady part of a run."""

    start: float
    end: float
    records: int
    steady: bool

    @property
    def seconds(self) -> float:
        return self.end - self.start

    @property
    def rate(self) -> float:
        return self.records / self.seconds


class Meter:
    """Collects samples of the running count, at most one per `interval` seconds."""

    def __init__(self, interval: float = 0.2, clock: Callable[[], float] = time.time) -> None:
        self.samples: list[tuple[float, int]] = []
        self._interval = interval
        self._clock = clock
        self._next = 0.0

    def mark(self, count: int) -> None:
        now = self._clock()
        if now >= self._next:
            self.samples.append((now, count))
            self._next = now + self._interval


class Pace:
    """Tells a peer that can stop at will when it has run long enough."""

    def __init__(self, order: Order, clock: Callable[[], float] = time.time) -> None:
        self._order = order
        self._clock = clock
        self._first: float | None = None
        self._warm_at: float | None = None

    def enough(self, count: int) -> bool:
        now = self._clock()
        if self._first is None:
            if count > 0:
                self._first = now
            return False
        if self._warm_at is None:
            elapsed = now - self._first
            warm = count >= self._order.keys and elapsed >= self._order.warm_seconds
            if warm or elapsed >= self._order.warm_limit:
                self._warm_at = now
            return False
        return now - self._warm_at >= self._order.seconds


def steady_window(
    samples: Sequence[tuple[float, int]], *, order: Order, total: int, bounded: bool
) -> Window:
    """Cut warm-up and tail off a run.

    The window opens when the warm-up time is over and every key has been seen once (or the
    warm-up limit is reached, or half of a run that is too short for that), and closes before a
    bounded run dries up. A run without room for a window of two samples gives its second half,
    marked as not steady.
    """
    if len(samples) < 2:
        raise ValueError(f"{len(samples)} samples are too few for a rate")
    begun = next((index for index, (_, count) in enumerate(samples) if count > 0), 0)
    first = samples[begun][0]
    filled = min(order.keys, total // 2)

    def warm(sample: tuple[float, int]) -> bool:
        elapsed = sample[0] - first
        return elapsed >= order.warm_limit or (
            elapsed >= order.warm_seconds and sample[1] >= filled
        )

    inside = [
        sample
        for sample in samples[begun:]
        if warm(sample) and (not bounded or sample[1] <= TAIL * total)
    ]
    steady = len(inside) >= 2 and inside[-1][1] > inside[0][1]
    if not steady:
        inside = [sample for sample in samples if sample[1] >= samples[-1][1] // 2][:]
        inside = inside if len(inside) >= 2 else list(samples[-2:])
    (start, low), (end, high) = inside[0], inside[-1]
    return Window(start=start, end=end, records=high - low, steady=steady)


def spread_measures(name: str, seconds: Iterable[float]) -> dict[str, float]:
    """Median, 99th percentile and largest of some durations, in milliseconds.

    Raises:
        ValueError: there are none, or one is negative: its two ends were read from clocks that
            do not agree, and then the others cannot be trusted either.
    """
    ordered = sorted(seconds)
    if not ordered:
        raise ValueError(f"no {name} was measured")
    if ordered[0] < 0:
        raise ValueError(f"a {name} of {ordered[0] * 1000:.1f} ms: it cannot end before it began")
    return {
        f"{name}_p50_ms": _quantile(ordered, 0.5) * 1000,
        f"{name}_p99_ms": _quantile(ordered, 0.99) * 1000,
        f"{name}_max_ms": ordered[-1] * 1000,
    }


def latency_measures(seconds: Iterable[float]) -> dict[str, float]:
    """What the latency workload reports."""
    return spread_measures("latency", seconds)


def _quantile(ordered: Sequence[float], share: float) -> float:
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def report(result: Result) -> None:
    """Print the result; the last thing a peer's program does."""
    result.versions.setdefault("python", platform.python_version())
    line: dict[str, Any] = {RESULT_MARK: 1, **asdict(result)}
    sys.stdout.flush()
    print("\n" + json.dumps(line), flush=True)


def leave() -> None:
    """End at once: a JVM or native threads left behind must not hold the measurement up."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)
