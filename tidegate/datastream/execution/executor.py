"""Runs job graphs: on Spark, or on a substitute for tests."""

from __future__ import annotations

import logging
import sys
from typing import TYPE_CHECKING, Protocol

from tidegate.core.checkpoint_settings import LATEST, CheckpointSettings
from tidegate.core.config import Settings
from tidegate.core.errors import AlreadyRunning
from tidegate.core.modes import LiveLine
from tidegate.datastream.execution.spark_session import (
    active_context,
    is_active,
    is_ours,
    make_context,
    prefer_this_python,
    refuse_spark_connect,
    session_of,
    ship_python_files,
    stop,
    task_slots,
)
from tidegate.exchange.pipelined.requirements import task_slots_for
from tidegate.graph.job_graph import JobGraph
from tidegate.prerequisites.machine import usable_cores
from tidegate.storage.locations import below, parent_and_name

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    from tidegate.driver.job_handle import JobHandle, Replan

_log = logging.getLogger(__name__)


class JobExecutor(Protocol):
    """Runs jobs for one environment."""

    def default_parallelism(self) -> int:
        """The parallelism of a job that does not set one."""

    def submit(
        self, graph: JobGraph, settings: Settings, replan: Replan | None = None
    ) -> JobHandle:
        """Start the job, which `replan` plans again; returns when it has been accepted."""

    def session(self) -> SparkSession:
        """A Spark session: that of the jobs that ran, if they needed one."""

    def close(self) -> bool:
        """Release what was started for ended jobs; returns whether the session is gone."""


class SparkExecutor:
    """Runs jobs on a Spark session: the given one, that of the process, or a new one."""

    def __init__(self, spark: SparkSession | None = None) -> None:
        if spark is not None:
            refuse_spark_connect(spark)
        self._given = spark
        self._made: SparkContext | None = None

    def default_parallelism(self) -> int:
        """Half the task slots of an existing session, otherwise the cores of this machine."""
        existing = self._existing()
        if existing is not None and not is_ours(existing):
            return max(1, task_slots(existing) // 2)
        return usable_cores()

    def submit(
        self, graph: JobGraph, settings: Settings, replan: Replan | None = None
    ) -> JobHandle:
        from tidegate.datastream.execution.warm_workers import warm_workers
        from tidegate.driver.launch import is_local, submit
        from tidegate.web.server import rest_server

        look_at_running_jobs(graph.name, settings.checkpointing)
        context = self._existing()
        if context is None or (self._given is None and _is_narrow(context, graph.slots)):
            context = self._made = make_context(settings, graph.slots, task_slots_for(graph))
        prefer_this_python(context)
        ship_python_files(context, settings.pipeline.python_files)
        warm_workers(context, is_local=is_local(context))
        server = rest_server(settings.rest)
        job = submit(graph, context, settings, replan)
        if server is not None:
            server.publish(job, context.applicationId)
            if settings.engine.live_line is not LiveLine.OFF:
                # A terminal keeps a secret, a log file does not.
                route = f"/jobs/{job.job_id}"
                at_terminal = sys.stderr.isatty()
                link = server.login_link(route) if at_terminal else f"{server.url}/#{route}"
                print(f"dashboard: {link}", file=sys.stderr)
        return job

    def session(self) -> SparkSession:
        if self._given is not None:
            return self._given
        context = active_context()
        if context is None:
            context = self._made = make_context(Settings(), self.default_parallelism())
        return session_of(context)

    def close(self) -> bool:
        made, self._made = self._made, None
        if made is None or not is_active(made):
            return False
        stop(made)
        return True

    def _existing(self) -> SparkContext | None:
        return active_context() if self._given is None else self._given.sparkContext


def look_at_running_jobs(name: str, settings: CheckpointSettings) -> None:
    """Check whether a job of this name already runs on this machine.

    Raises:
        AlreadyRunning: it does, and this job would take its checkpoints away.
    """
    from tidegate.web.registry import namesake_warning, running_jobs

    for other in running_jobs():
        if other.name != name:
            continue
        if settings.restore_path != LATEST or not _writes_to(other.checkpoint_directory, settings):
            _log.warning("%s", namesake_warning(name, other))
        elif settings.take_over:
            _log.warning(
                "this driver takes over job %s from process %d, which fails",
                other.job_id,
                other.pid,
            )
        else:
            raise AlreadyRunning(name, other.job_id, other.pid)


def _writes_to(directory: str | None, settings: CheckpointSettings) -> bool:
    """Whether a job's directory is below the directory of checkpoints."""
    if directory is None or settings.directory is None:
        return False
    return parent_and_name(directory)[0] == parent_and_name(below(settings.directory, "job"))[0]


def _is_narrow(context: SparkContext, parallelism: int) -> bool:
    """Whether a session of ours has too few task slots; a user's session is used as it is."""
    return is_ours(context) and task_slots(context) < 2 * parallelism
