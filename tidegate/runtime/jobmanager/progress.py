"""What a running job has done so far, for the live line and for whoever asks."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tidegate.checkpoint.statistics import CheckpointRecord
from tidegate.runtime.jobmanager.pipeline_driver import PipelineDriver


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """Totals over all pipelines since they were deployed."""

    records_in: int
    """Read by sources."""
    records_out: int
    """Taken by the vertices that send to no other: the sinks and what is chained to them."""
    lag: int | None
    """Records that wait to be read, where all sources know it."""
    steps: int
    step_seconds: float | None
    """Of the last step of the slowest pipeline."""
    checkpoint: CheckpointRecord | None = None
    """The last one that completed."""


def progress_of(
    drivers: Iterable[PipelineDriver], checkpoint: CheckpointRecord | None = None
) -> Progress:
    read = taken = steps = 0
    lags: list[int | None] = []
    seconds: list[float] = []
    for driver in drivers:
        steps += driver.region.last_step
        if driver.step_seconds is not None:
            seconds.append(driver.step_seconds)
        sources = {vertex.id for vertex in driver.pipeline.sources}
        for report in list(driver.reports.values()):
            read += sum(report.records_in.get(id, 0) for id in sources)
            lags += [source.pending for source in report.sources.values()]
            taken += sum(
                report.records_in.get(vertex.id, 0)
                for vertex in driver.pipeline.vertices
                if vertex.id in driver.pipeline.sinks
            )
    known = [lag for lag in lags if lag is not None]
    return Progress(
        records_in=read,
        records_out=taken,
        lag=sum(known) if known and len(known) == len(lags) else None,
        steps=steps,
        step_seconds=max(seconds, default=None),
        checkpoint=checkpoint,
    )
