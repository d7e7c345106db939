"""Who runs job graphs: Spark, or what a test puts in its place."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Protocol

from tidegate.common.job_client import JobHandle
from tidegate.core.config import Settings
from tidegate.datastream.spark_session import (
    active_session,
    make_session,
    refuse_spark_connect,
    task_slots,
)
from tidegate.graph.job_graph import JobGraph

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class JobExecutor(Protocol):
    """Runs jobs for one environment."""

    def default_parallelism(self) -> int:
        """The parallelism of a job that does not set one."""

    def submit(self, graph: JobGraph, settings: Settings) -> JobHandle:
        """Start the job; returns when it has been accepted."""

    def close(self) -> None:
        """Release what was started for the jobs, which have ended."""


class SparkExecutor:
    """Runs jobs on a Spark session: the given one, the process's, or one that it makes."""

    def __init__(self, spark: SparkSession | None = None) -> None:
        if spark is not None:
            refuse_spark_connect(spark)
        self._given = spark
        self._made: SparkSession | None = None

    def default_parallelism(self) -> int:
        if self._given is not None:
            return max(1, task_slots(self._given) // 2)
        return _cores()

    def session(self, settings: Settings, parallelism: int) -> SparkSession:
        """The session for a job of this parallelism."""
        if self._given is not None:
            return self._given
        self._made = make_session(settings, parallelism)
        return self._made

    def submit(self, graph: JobGraph, settings: Settings) -> JobHandle:
        from tidegate.runtime.launch import submit

        spark = self.session(settings, graph.slots)
        handle: JobHandle = submit(graph, spark, settings, graph.name)
        return handle

    def close(self) -> None:
        if self._made is not None and is_ours(self._made):
            self._made.stop()
        self._made = None


def _cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
