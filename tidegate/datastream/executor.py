"""Who runs job graphs: Spark, or what a test puts in its place."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Protocol

from tidegate.common.job_client import JobHandle
from tidegate.core.config import Settings
from tidegate.datastream.spark_session import (
    active_session,
    is_ours,
    make_session,
    refuse_spark_connect,
    ship_python_files,
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

    def session(self) -> SparkSession:
        """A Spark session, of the jobs that ran if they needed one."""

    def close(self) -> bool:
        """Release what was started for jobs that have ended; whether the session is no more."""


class SparkExecutor:
    """Runs jobs on a Spark session: the given one, the process's, or one that it makes."""

    def __init__(self, spark: SparkSession | None = None) -> None:
        if spark is not None:
            refuse_spark_connect(spark)
        self._given = spark
        self._used: SparkSession | None = None

    def default_parallelism(self) -> int:
        """Half the task slots of a session that is there, else the cores of this machine."""
        existing = self._given or active_session()
        if existing is not None and not is_ours(existing):
            return max(1, task_slots(existing) // 2)
        return _cores()

    def submit(self, graph: JobGraph, settings: Settings) -> JobHandle:
        from tidegate.runtime.launch import submit

        spark = self._given
        if spark is None:
            spark = self._used = make_session(settings, graph.slots)
        ship_python_files(spark, settings.pipeline.python_files)
        return submit(graph, spark, settings)

    def session(self) -> SparkSession:
        if self._given is not None:
            return self._given
        return active_session() or make_session(Settings(), self.default_parallelism())

    def close(self) -> bool:
        used, self._used = self._used, None
        if used is None or not is_ours(used):
            return False
        used.stop()
        return True


def _cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
