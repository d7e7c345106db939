"""The rates of a job, from the difference between two samples. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from tidegate.core.ids import Attempt, EdgeId, VertexId
from tidegate.driver.progress import SubtaskProgress, VertexProgress
from tidegate.protocol.messages import Traffic
from tidegate.protocol.region import RegionState

_WINDOW = 5
"""The number of samples between which rates are computed: a step may take several."""


@dataclass(frozen=True, slots=True)
class Counts:
    """The counts of a job at one moment."""

    at: float
    """Seconds of the monotonic clock."""
    records_in: int
    records_out: int
    vertices: Mapping[VertexId, VertexProgress]
    traffic: Mapping[EdgeId, Traffic]


@dataclass(frozen=True, slots=True, kw_only=True)
class SubtaskRates:
    """The rates of one subtask. The three shares of its time add up to 1."""

    records_in: float = 0.0
    records_out: float = 0.0
    busy: float = 0.0
    back_pressured: float = 0.0
    idle: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class VertexRates:
    """The rates of a vertex: sums of records, means of shares."""

    subtasks: tuple[SubtaskRates, ...]
    skew: float
    """0: all subtasks receive the same amount; 1: one receives everything."""

    @property
    def records_in(self) -> float:
        return sum(each.records_in for each in self.subtasks)

    @property
    def records_out(self) -> float:
        return sum(each.records_out for each in self.subtasks)

    @property
    def busy(self) -> float:
        return self._mean([each.busy for each in self.subtasks])

    @property
    def back_pressured(self) -> float:
        return self._mean([each.back_pressured for each in self.subtasks])

    @property
    def busiest(self) -> float:
        return max(each.busy for each in self.subtasks)

    def _mean(self, values: list[float]) -> float:
        return sum(values) / len(values)


@dataclass(frozen=True, slots=True, kw_only=True)
class SpentTime:
    """The seconds since deployment in which a subtask did not work."""

    back_pressured: float = 0.0
    idle: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """The rates of a job in records and bytes per second."""

    records_in: float
    records_out: float
    vertices: Mapping[VertexId, VertexRates]
    edges: Mapping[EdgeId, tuple[float, float]]
    spent: Mapping[VertexId, tuple[SpentTime, ...]] = field(default_factory=dict)
    """By vertex and subtask."""


@dataclass(slots=True)
class _Deployment:
    """A vertex since it was deployed."""

    attempt: Attempt
    since: float
    """When it was not yet seen, in seconds of the monotonic clock."""
    waited: float = 0.0
    """Seconds in which it waited for later levels, or worked meanwhile."""

    def spent(self, subtask: SubtaskProgress, at: float) -> SpentTime:
        not_working = max(0.0, at - self.since - subtask.worked)
        back_pressured = min(self.waited, not_working)
        return SpentTime(back_pressured=back_pressured, idle=not_working - back_pressured)


class RateMeter:
    """The last samples of a job."""

    def __init__(self) -> None:
        self._samples: deque[Counts] = deque(maxlen=_WINDOW + 1)
        self._deployments: dict[VertexId, _Deployment] = {}
        self._rates: Rates | None = None
        """Computed once per sample, if anybody asks."""

    def take(self, sample: Counts) -> None:
        before = self.latest or sample
        self._samples.append(sample)
        self._rates = None
        seconds = max(sample.at - before.at, 1e-3)
        waits = _waits(before, sample, seconds)
        for id, vertex in sample.vertices.items():
            known = self._deployments.get(id)
            if known is None or known.attempt != vertex.attempt:
                known = self._deployments[id] = _Deployment(vertex.attempt, before.at)
            known.waited += seconds * waits.get(id, 0.0)

    @property
    def latest(self) -> Counts | None:
        return self._samples[-1] if self._samples else None

    def rates(self) -> Rates | None:
        """The current rates; None until there are two samples."""
        if self._rates is None and len(self._samples) > 1:
            latest = self._samples[-1]
            spent = {
                id: tuple(self._deployments[id].spent(each, latest.at) for each in vertex.subtasks)
                for id, vertex in latest.vertices.items()
            }
            self._rates = replace(rates_between(self._samples[0], latest), spent=spent)
        return self._rates


def rates_between(before: Counts, after: Counts) -> Rates:
    seconds = max(after.at - before.at, 1e-3)
    waits = _waits(before, after, seconds)
    return Rates(
        records_in=_rate(before.records_in, after.records_in, seconds),
        records_out=_rate(before.records_out, after.records_out, seconds),
        vertices={
            id: _vertex_rates(before.vertices.get(id), vertex, waits.get(id, 0.0), seconds)
            for id, vertex in after.vertices.items()
        },
        edges={
            id: (
                _rate(before.traffic.get(id, Traffic(0, 0)).records, traffic.records, seconds),
                _rate(before.traffic.get(id, Traffic(0, 0)).size, traffic.size, seconds),
            )
            for id, traffic in after.traffic.items()
        },
    )


def skew_of(counts: list[int]) -> float:
    """How unevenly records are distributed over subtasks."""
    total = sum(counts)
    if total == 0 or len(counts) == 1:
        return 0.0
    even = 1 / len(counts)
    return (max(counts) / total - even) / (1 - even)


def _rate(before: float, after: float, seconds: float) -> float:
    """A rate; counts start over at 0 when a pipeline is redeployed."""
    return (after - before if after >= before else after) / seconds


def _vertex_rates(
    before: VertexProgress | None, after: VertexProgress, wait: float, seconds: float
) -> VertexRates:
    return VertexRates(
        subtasks=tuple(
            _subtask_rates(was, now, wait, seconds) for was, now in _pairs(before, after)
        ),
        skew=skew_of([subtask.records_in for subtask in after.subtasks]),
    )


def _pairs(
    before: VertexProgress | None, after: VertexProgress
) -> Iterator[tuple[SubtaskProgress, SubtaskProgress]]:
    """Each subtask before and after; one deployed in between starts at zero."""
    for index, now in enumerate(after.subtasks):
        was = SubtaskProgress()
        if before is not None and before.attempt == after.attempt and index < len(before.subtasks):
            was = before.subtasks[index]
        yield was, now


def _subtask_rates(
    was: SubtaskProgress, now: SubtaskProgress, wait: float, seconds: float
) -> SubtaskRates:
    busy = min(1.0, _rate(was.worked, now.worked, seconds))
    back_pressured = min(1.0 - busy, wait)
    return SubtaskRates(
        records_in=_rate(was.records_in, now.records_in, seconds),
        records_out=_rate(was.records_out, now.records_out, seconds),
        busy=busy,
        back_pressured=back_pressured,
        idle=1.0 - busy - back_pressured,
    )


def _waits(before: Counts, after: Counts, seconds: float) -> dict[VertexId, float]:
    """The share of time in which each vertex waited for later levels instead of working.

    The levels of a pipeline work in turn. While there is more to read, a level that has done its
    part of a step waits for the slowest subtasks of all later levels.
    """
    found: dict[VertexId, float] = {}
    by_pipeline: dict[int, list[VertexProgress]] = {}
    for vertex in after.vertices.values():
        by_pipeline.setdefault(vertex.vertex.pipeline, []).append(vertex)
    for members in by_pipeline.values():
        if not any(
            subtask.has_more and member.state is RegionState.RUNNING
            for member in members
            for subtask in member.subtasks
        ):
            continue
        worked: dict[int, float] = {}
        for member in members:
            pairs = _pairs(before.vertices.get(member.vertex.id), member)
            slowest = max(_rate(was.worked, now.worked, seconds) for was, now in pairs)
            level = member.vertex.level
            worked[level] = worked.get(level, 0.0) + slowest
        for member in members:
            level = member.vertex.level
            found[member.vertex.id] = sum(share for at, share in worked.items() if at > level)
    return found
