"""What the pipelined exchange requires of a Spark session."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from tidegate.graph.job_graph import JobGraph, Pipeline

JAR: Final = Path(__file__).with_name("pumps.jar")
SHUFFLE_SETTINGS: Final = {
    # Send every frame at once; at most two per slot wait in a pump.
    "spark.shuffle.streaming.networkBufferSize": "1",
    "spark.shuffle.streaming.writerMaxMemory": "1",
    # A thread flushes what waits longer; nothing does.
    "spark.shuffle.streaming.networkBufferMaxWaitTimeMs": "1000",
    # The most that a barrier waits for.
    "spark.shuffle.streaming.readerMaxMemory": str(4 << 20),
}
"""Settings that make Spark's streaming shuffle fast."""

WORKER_SETTINGS: Final = {
    "spark.python.daemon.module": "tidegate.datastream.execution.worker_daemon"
}
"""Settings that make slots start quickly."""

FETCH_SETTINGS: Final = {
    # A slot whose executor is lost asks that executor for the code of its task first. Spark waits
    # for 5 s before it asks again, and only then learns that the executor is gone. Together, the
    # retries take as long as by default. Spark drops fractions of a second.
    "spark.shuffle.io.retryWait": "1s",
    "spark.shuffle.io.maxRetries": "15",
}
"""Settings that make slots restart quickly on another executor."""


def session_settings() -> dict[str, str]:
    """All settings that a Spark session must be started with."""
    return {"spark.jars": str(JAR), **SHUFFLE_SETTINGS, **WORKER_SETTINGS, **FETCH_SETTINGS}


def is_pumped(pipeline: Pipeline) -> bool:
    """Whether packets leave their slots at all."""
    return _pumps(pipeline.slots, pipeline.levels) > 0


def _pumps(slots: int, levels: int) -> int:
    return slots * levels if slots > 1 and levels > 1 else 0


def pumps_for(graph: JobGraph) -> int:
    """How many pumps run concurrently, for all pipelines."""
    return sum(_pumps(each.slots, each.levels) for each in graph.pipelines)


def task_slots_for(graph: JobGraph) -> int:
    """How many concurrent tasks Spark must run: slots, pumps, and a spare one."""
    return graph.slots + pumps_for(graph) + 1


def task_slots_needed(parallelism: int, levels: int) -> int:
    """The same for a job with one pipeline."""
    return parallelism + _pumps(parallelism, levels) + 1
