"""Progress of a running job, for the live line and the REST API."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tidegate.checkpoint.statistics import CheckpointRecord
from tidegate.connectors.source import InputStatus
from tidegate.core.errors import UserError
from tidegate.core.ids import Attempt, EdgeId, SlotIndex
from tidegate.driver.checkpoints.restoring import RestoreProgress, together
from tidegate.driver.pipeline_driver import PipelineDriver
from tidegate.graph.job_graph import Vertex
from tidegate.operators.accumulators import FunctionAccumulator
from tidegate.protocol.messages import Traffic
from tidegate.protocol.region import RegionState


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """Totals over all pipelines since deployment."""

    records_in: int
    """Records read by sources."""
    records_out: int
    """Records received by sinks."""
    lag: int | None
    """Records waiting to be read, if all sources know it."""
    records_to_repeat: int = 0
    """Records that sources read again after a failure before they are back where they were."""
    steps: int
    step_seconds: float | None
    """The duration of the last step of the slowest pipeline."""
    restore: RestoreProgress | None = None
    """The progress of the last restore."""
    checkpoint: CheckpointRecord | None = None
    """The last completed checkpoint."""
    restart: str | None = None
    """The pending restart after a failure, as text."""

    @property
    def behind(self) -> int:
        """Records left to read: to the end, or to the position before a failure."""
        return self.records_to_repeat if self.lag is None else self.lag


def progress_of(
    drivers: Iterable[PipelineDriver], checkpoint: CheckpointRecord | None = None
) -> Progress:
    read = taken = steps = to_repeat = 0
    restores: list[RestoreProgress] = []
    lags: list[int | None] = []
    seconds: list[float] = []
    for driver in drivers:
        steps += driver.region.last_step
        if driver.step_seconds is not None:
            seconds.append(driver.step_seconds)
        if driver.restoring is not None:
            restores.append(driver.restoring.progress)
        read += driver.records_in
        to_repeat += driver.records_to_repeat
        for report in list(driver.reports.values()):
            lags += [source.pending for source in report.sources.values()]
            taken += report.records_taken
    known = [lag for lag in lags if lag is not None]
    return Progress(
        records_in=read,
        records_out=taken,
        lag=sum(known) if known and len(known) == len(lags) else None,
        records_to_repeat=to_repeat,
        restore=together(restores),
        steps=steps,
        step_seconds=max(seconds, default=None),
        checkpoint=checkpoint,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SubtaskProgress:
    """The progress of one subtask since deployment."""

    records_in: int = 0
    records_out: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    pending: int | None = None
    """Records waiting to be read, if it is a source that knows it."""
    is_finished: bool = False
    watermark: int | None = None
    """Event time in milliseconds since the epoch; None: no watermark yet."""
    idle_channels: int = 0
    """How many channels do not hold back the watermark."""
    worked: float = 0.0
    """Seconds."""
    has_more: bool = False
    """Whether it is a source with more input available."""
    user_metrics: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """Metrics of functions, by operator and name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VertexProgress:
    vertex: Vertex
    state: RegionState
    """The state of its pipeline."""
    attempt: Attempt
    step_seconds: float | None
    subtasks: tuple[SubtaskProgress, ...]

    @property
    def watermark(self) -> int | None:
        """The watermark of the slowest subtask; None: one of them has none yet."""
        found = [subtask.watermark for subtask in self.subtasks]
        known = [watermark for watermark in found if watermark is not None]
        return min(known) if len(known) == len(found) else None


def vertex_progress(drivers: Iterable[PipelineDriver]) -> tuple[VertexProgress, ...]:
    """The progress of all vertices, in the order of the graph."""
    found = [
        VertexProgress(
            vertex=vertex,
            state=driver.region.state,
            attempt=driver.region.attempt,
            step_seconds=driver.step_seconds,
            subtasks=tuple(
                _subtask_progress(driver, vertex, SlotIndex(i)) for i in range(vertex.parallelism)
            ),
        )
        for driver in drivers
        for vertex in driver.pipeline.vertices
    ]
    return tuple(sorted(found, key=lambda each: each.vertex.id))


def traffic_of(drivers: Iterable[PipelineDriver]) -> dict[EdgeId, Traffic]:
    """What all slots together have sent along each edge."""
    found: dict[EdgeId, Traffic] = {}
    for driver in drivers:
        for report in list(driver.reports.values()):
            for edge, (records, size) in report.sent.items():
                before = found.get(edge, Traffic(0, 0))
                found[edge] = Traffic(before.records + records, before.size + size)
    return found


def merged_accumulators(drivers: Iterable[PipelineDriver]) -> dict[str, Any]:
    """The values of accumulators, merged over all subtasks."""
    merged: dict[str, FunctionAccumulator] = {}
    for driver in drivers:
        for counts in list(driver.counts.values()):
            for name, pickled in counts.accumulators:
                found: FunctionAccumulator = pickle.loads(pickled)
                if name not in merged:
                    merged[name] = found
                elif type(merged[name]) is type(found):
                    merged[name].merge(found)
                else:
                    kinds = f"{type(merged[name]).__name__} and {type(found).__name__}"
                    raise UserError(f"accumulator {name!r} is both {kinds}: use two names")
    return {name: accumulator.get_local_value() for name, accumulator in merged.items()}


def _subtask_progress(driver: PipelineDriver, vertex: Vertex, slot: SlotIndex) -> SubtaskProgress:
    report = driver.reports.get(slot)
    if report is None:
        return SubtaskProgress()
    source = report.sources.get(vertex.id)
    counts = driver.counts.get(slot)
    return SubtaskProgress(
        records_in=report.records_in.get(vertex.id, 0),
        records_out=report.records_out.get(vertex.id, 0),
        bytes_in=report.bytes_in.get(vertex.id, 0),
        bytes_out=report.bytes_out.get(vertex.id, 0),
        pending=None if source is None else source.pending,
        is_finished=vertex.id in report.finished,
        watermark=report.watermarks.get(vertex.id),
        idle_channels=report.idle_channels.get(vertex.id, 0),
        worked=report.worked.get(vertex.id, 0.0),
        has_more=source is not None and source.status is InputStatus.MORE_AVAILABLE,
        user_metrics={} if counts is None else counts.metrics.get(vertex.id, {}),
    )
