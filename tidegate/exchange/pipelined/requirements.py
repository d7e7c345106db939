"""What the pipelined exchange needs of a Spark session."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from tidegate.graph.job_graph import JobGraph, Pipeline

JAR: Final = Path(__file__).with_name("pumps.jar")
SHUFFLE_SETTINGS: Final = {
    # Every frame is sent at once, and at most two for each slot wait in a pump.
    "spark.shuffle.streaming.networkBufferSize": "1",
    "spark.shuffle.streaming.writerMaxMemory": "1",
    # A thread flushes what waits longer; nothing does.
    "spark.shuffle.streaming.networkBufferMaxWaitTimeMs": "1000",
    # What a barrier waits for at most.
    "spark.shuffle.streaming.readerMaxMemory": str(4 << 20),
}
"""With these, Spark's streaming shuffle is quick."""

WORKER_SETTINGS: Final = {
    "spark.python.daemon.module": "tidegate.datastream.execution.worker_daemon"
}
"""With these, slots start quickly."""


def session_settings() -> dict[str, str]:
    """All that a Spark session has to be started with."""
    return {"spark.jars": str(JAR), **SHUFFLE_SETTINGS, **WORKER_SETTINGS}


def is_pumped(pipeline: Pipeline) -> bool:
    """Whether packets leave their slots at all."""
    return pipeline.slots > 1 and pipeline.levels > 1


def pumps_for(graph: JobGraph) -> int:
    """How many pumps run at once, for all pipelines."""
    return sum(each.slots * each.levels for each in graph.pipelines if is_pumped(each))


def task_slots_for(graph: JobGraph) -> int:
    """How many tasks Spark has to run at once: slots, pumps, and one to spare."""
    return graph.slots + pumps_for(graph) + 1
