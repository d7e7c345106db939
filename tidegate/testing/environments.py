"""Environments without Spark: the real engine in this process, to test a user's functions.

with mini_environment(parallelism=2) as env:
    assert env.from_collection([1, 2]).map(lambda n: n + 1).execute_and_collect(limit=9) == [2, 3]
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tidegate.common.configuration import Configuration
from tidegate.core.clock import Clock
from tidegate.core.config import Settings
from tidegate.core.errors import GraphError
from tidegate.datastream.environment import StreamExecutionEnvironment
from tidegate.datastream.execution.spark_session import active_session
from tidegate.driver.job_handle import JobHandle, Replan
from tidegate.graph.job_graph import JobGraph
from tidegate.testing.mini_cluster import run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class MiniExecutor:
    """Runs every job on its own mini cluster."""

    def __init__(self, parallelism: int, clock: Clock | None = None) -> None:
        self._parallelism = parallelism
        self._clock = clock

    def default_parallelism(self) -> int:
        return self._parallelism

    def submit(
        self, graph: JobGraph, settings: Settings, replan: Replan | None = None
    ) -> JobHandle:
        return run(graph, settings, replan, self._clock)

    def session(self) -> SparkSession:
        spark = active_session()
        if spark is None:
            raise GraphError("DataFrames need Spark, but this environment runs without it")
        return spark

    def close(self) -> bool:
        return False


def mini_environment(
    configuration: Configuration | Mapping[str, Any] | None = None,
    *,
    parallelism: int = 1,
    clock: Clock | None = None,
) -> StreamExecutionEnvironment:
    """An environment whose jobs run in this process, quickly, with the real engine.

    Processing-time timers follow `clock`: with a `ManualClock`, the test decides when they fire.
    """
    return StreamExecutionEnvironment(configuration, MiniExecutor(parallelism, clock))
