"""The jobs of a driver as Prometheus metrics.

Metrics that Flink has, too, use its names, so that dashboards for Flink work; Tidegate's own begin
with `tidegate_`.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Sequence

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from tidegate.checkpoint.statistics import CheckpointRecord
from tidegate.core.redaction import redacted
from tidegate.driver.job_handle import JobHandle
from tidegate.protocol.job_status import JobStatus
from tidegate.stream.elements import FINAL_WATERMARK
from tidegate.web.documents.common import milliseconds, vertex_id

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_JOB = ("job_id", "job_name")
_TASK = (*_JOB, "task_id", "task_name", "subtask_index")
_OF_FLINKS_JOB = "flink_jobmanager_job_"
_NANOSECONDS = 1e9
_NOT_IN_A_NAME = re.compile(r"[^a-zA-Z0-9_:]")
Value = Callable[[JobHandle], float | None]


def rendered(jobs: Sequence[JobHandle]) -> bytes:
    """All metrics, as text."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Jobs(jobs))
    return generate_latest(registry)


class _Jobs(Collector):
    def __init__(self, jobs: Sequence[JobHandle]) -> None:
        self._jobs = jobs

    def collect(self) -> Iterator[GaugeMetricFamily]:
        running = [job for job in self._jobs if not job.status().is_terminal]
        yield GaugeMetricFamily(
            "flink_jobmanager_numRunningJobs", "Running jobs.", value=len(running)
        )
        yield from self._of_jobs()
        yield from self._of_subtasks()
        yield from self._of_functions()

    def _of_jobs(self) -> Iterator[GaugeMetricFamily]:
        for name, text, value in _OF_JOB:
            family = GaugeMetricFamily(name, text, labels=_JOB)
            for job in self._jobs:
                found = value(job)
                if found is not None:
                    family.add_metric(_names(job), found)
            yield family
        states = GaugeMetricFamily(
            "tidegate_job_state", "1 for the state of the job.", labels=[*_JOB, "state"]
        )
        for job in self._jobs:
            states.add_metric([*_names(job), job.status().name], 1)
        yield states

    def _of_subtasks(self) -> Iterator[GaugeMetricFamily]:
        read, sent, waiting, aligned, delayed, time_, lag, idle = (
            GaugeMetricFamily(f"flink_taskmanager_job_task_{name}", text, labels=_TASK)
            for name, text in _OF_SUBTASK.items()
        )
        for job in self._jobs:
            record = job.checkpoints.latest_completed
            facts = {} if record is None else record.subtasks
            labels: dict[tuple[int, int], list[str]] = {}
            for progress in job.vertices():
                vertex = progress.vertex
                for index, subtask in enumerate(progress.subtasks):
                    names = [*_names(job), vertex_id(vertex), redacted(vertex.name), str(index)]
                    labels[vertex.id, index] = names
                    read.add_metric(names, subtask.records_in)
                    sent.add_metric(names, subtask.records_out)
                    if subtask.pending is not None:
                        waiting.add_metric(names, subtask.pending)
                    if subtask.watermark is not None:
                        time_.add_metric(names, subtask.watermark)
                        if subtask.watermark < FINAL_WATERMARK:
                            lag.add_metric(names, milliseconds(time.time()) - subtask.watermark)
                        idle.add_metric(names, subtask.idle_channels)
            for who, done in facts.items():
                names = labels.get((who.vertex, who.subtask), [])
                if names:
                    aligned.add_metric(names, _NANOSECONDS * done.alignment)
                    delayed.add_metric(names, _NANOSECONDS * done.start_delay)
        yield from (read, sent, waiting, aligned, delayed, time_, lag, idle)

    def _of_functions(self) -> Iterator[GaugeMetricFamily]:
        """Metrics of functions, under Flink's names."""
        families: dict[str, GaugeMetricFamily] = {}
        for job in self._jobs:
            for progress in job.vertices():
                vertex = progress.vertex
                for index, subtask in enumerate(progress.subtasks):
                    for operator, readings in subtask.user_metrics.items():
                        names = [*_names(job), vertex_id(vertex), vertex.name, str(index), operator]
                        for metric, value in readings.items():
                            name = _NOT_IN_A_NAME.sub("_", metric)
                            family = families.setdefault(
                                name,
                                GaugeMetricFamily(
                                    f"flink_taskmanager_job_task_operator_{name}",
                                    f"{metric} of a function.",
                                    labels=[*_TASK, "operator_name"],
                                ),
                            )
                            family.add_metric(names, value)
        yield from families.values()


_OF_SUBTASK = {
    "numRecordsIn": "Records received.",
    "numRecordsOut": "Records sent.",
    "operator_pendingRecords": "Records waiting to be read.",
    "checkpointAlignmentTime": "Nanoseconds, in the last checkpoint.",
    "checkpointStartDelayNanos": "In the last checkpoint.",
    "currentInputWatermark": "Milliseconds since the epoch; for a source, its own.",
    "operator_watermarkLag": "Milliseconds that the watermark is behind the clock.",
    "idleChannels": "Channels that do not hold back the watermark.",
}


def job_metrics(job: JobHandle) -> dict[str, float]:
    """Those of a job that Flink has, by its names."""
    return {
        name.removeprefix(_OF_FLINKS_JOB): found
        for name, _, value in _OF_JOB
        if name.startswith(_OF_FLINKS_JOB) and (found := value(job)) is not None
    }


def _names(job: JobHandle) -> list[str]:
    return [job.job_id, redacted(job.name)]


def _uptime(job: JobHandle) -> float:
    since = job.chronicle.entered().get(JobStatus.RUNNING)
    if since is None or job.status() is not JobStatus.RUNNING:
        return 0.0
    return milliseconds(time.time() - since)


def _restored_at(job: JobHandle) -> float | None:
    restored = job.checkpoints.latest_restored
    return None if restored is None else milliseconds(restored.restored_at)


def _of_last(value: Callable[[CheckpointRecord], float]) -> Value:
    def of(job: JobHandle) -> float | None:
        record = job.checkpoints.latest_completed
        return None if record is None else value(record)

    return of


_OF_JOB: tuple[tuple[str, str, Value], ...] = (
    ("flink_jobmanager_job_uptime", "Milliseconds since it last started running.", _uptime),
    ("flink_jobmanager_job_numRestarts", "Restarts.", lambda job: job.chronicle.restarts),
    ("tidegate_job_records_in", "Read by sources.", lambda job: job.progress().records_in),
    ("tidegate_job_records_out", "Received by sinks.", lambda job: job.progress().records_out),
    ("tidegate_job_lag", "Records waiting to be read.", lambda job: job.progress().lag),
    (
        "tidegate_job_records_to_repeat",
        "Read again after a failure until sources have caught up.",
        lambda job: job.progress().records_to_repeat,
    ),
    ("tidegate_job_steps", "Steps begun.", lambda job: job.progress().steps),
    (
        "tidegate_job_step_duration_seconds",
        "Of the last step of the slowest pipeline.",
        lambda job: job.progress().step_seconds,
    ),
    (
        "flink_jobmanager_job_totalNumberOfCheckpoints",
        "Triggered.",
        lambda job: job.checkpoints.counts.triggered,
    ),
    (
        "flink_jobmanager_job_numberOfInProgressCheckpoints",
        "Under way.",
        lambda job: job.checkpoints.counts.in_progress,
    ),
    (
        "flink_jobmanager_job_numberOfCompletedCheckpoints",
        "Completed.",
        lambda job: job.checkpoints.counts.completed,
    ),
    (
        "flink_jobmanager_job_numberOfFailedCheckpoints",
        "Failed.",
        lambda job: job.checkpoints.counts.failed,
    ),
    (
        "flink_jobmanager_job_lastCheckpointDuration",
        "Milliseconds from trigger to completion.",
        _of_last(lambda record: milliseconds(record.duration)),
    ),
    (
        "flink_jobmanager_job_lastCheckpointSize",
        "Bytes written for it.",
        _of_last(lambda record: record.incremental_size),
    ),
    (
        "flink_jobmanager_job_lastCheckpointFullSize",
        "Bytes that a restore reads.",
        _of_last(lambda record: record.size),
    ),
    (
        "flink_jobmanager_job_lastCheckpointCompletedTimestamp",
        "Milliseconds since the epoch.",
        _of_last(lambda record: milliseconds(record.ended_at)),
    ),
    (
        "flink_jobmanager_job_lastCheckpointRestoreTimestamp",
        "Milliseconds since the epoch.",
        _restored_at,
    ),
)
