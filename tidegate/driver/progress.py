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
    """Totals over all pipelines since they were deployed."""

    records_in: int
    """Read by sources."""
    records_out: int
    """Received by sinks."""
    lag: int | None
    """Records that wait to be read, where all sources know it."""
    records_to_repeat: int = 0
    """Records that sources read again until they are where they had been before a failure."""
    steps: int
    step_seconds: float | None
    """Of the last step of the slowest pipeline."""
    restore: RestoreProgress | None = None
    """Of the checkpoint that the job resumed from last."""
    checkpoint: CheckpointRecord | None = None
    """The last one that completed."""
    restart: str | None = None
    """Which restart the job waits for, after a failure, and for how long."""

    @property
    def behind(self) -> int:
        """Records to read until the job has caught up: with the end, or with where it had been."""
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
    """What one subtask has done since it was deployed."""

    records_in: int = 0
    records_out: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    pending: int | None = None
    """Records that wait to be read, of a source that knows it."""
    is_finished: bool = False
    watermark: int | None = None
    """How far event time has come, in milliseconds since the epoch; None: there is none yet."""
    idle_channels: int = 0
    """Channels that hold no watermark back."""
    worked: float = 0.0
    """Seconds."""
    has_more: bool = False
    """Whether it is a source that could read more at once."""
    user_metrics: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """What functions have counted, by operator and name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VertexProgress:
    """What the subtasks of one vertex have done."""

    vertex: Vertex
    state: RegionState
    """Of its pipeline."""
    attempt: Attempt
    step_seconds: float | None
    subtasks: tuple[SubtaskProgress, ...]

    @property
    def watermark(self) -> int | None:
        """That of the slowest subtask; None: one of them has none yet."""
        found = [subtask.watermark for subtask in self.subtasks]
        known = [watermark for watermark in found if watermark is not None]
        return min(known) if len(known) == len(found) else None


def vertex_progress(drivers: Iterable[PipelineDriver]) -> tuple[VertexProgress, ...]:
    """Of all vertices, in the order of the graph."""
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
    """What functions have added up, over all subtasks."""
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
