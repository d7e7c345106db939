"""What a Spark master offers to jobs: task slots, an exchange, workers that have Tidegate."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from tidegate.core.config import Settings
from tidegate.core.errors import ExternalError
from tidegate.datastream.execution.spark_session import make_context, stop
from tidegate.driver.launch import registered_task_slots
from tidegate.exchange.choice import obstacle_to_pumps
from tidegate.exchange.pipelined.requirements import task_slots_needed
from tidegate.exchange.pipelined.self_test import SelfTest
from tidegate.prerequisites.check import Check, missing, ok, warning
from tidegate.transport.spark_errors import reason_of
from tidegate.transport.versions import mismatch, versions

if TYPE_CHECKING:
    from pyspark import SparkContext

_LEVELS = 2
"""Of a job with one `key_by`."""


def examine_master(master: str, parallelism: int) -> list[Check]:
    """Start Spark on a master and check what a job of this parallelism would find there.

    Raises:
        ExternalError: Spark does not start.
    """
    settings = Settings.of({"tidegate.spark.master": master, "pipeline.name": "tidegate doctor"})
    try:
        context = make_context(settings, parallelism)
    except Exception as failure:
        reason = reason_of(failure)
        raise ExternalError(f"Spark does not start on {master}: {reason}") from failure
    try:
        return list(_checks(context, parallelism))
    finally:
        stop(context)


def _checks(context: SparkContext, parallelism: int) -> Iterator[Check]:
    fewest = parallelism + 1
    needed = task_slots_needed(parallelism, _LEVELS)
    found = registered_task_slots(context, needed)
    job = f"a job of parallelism {parallelism} with one key_by"
    yield ok("Spark", f"{context.version} on {context.master}")
    if found < fewest:
        advice = f"{job} needs {fewest} at least: give Spark more cores, or lower the parallelism"
        yield missing("task slots", str(found), advice)
        return
    more = task_slots_needed(parallelism, _LEVELS + 1) - needed
    yield ok(
        "task slots",
        f"{found}; {job} needs {needed} for the pipelined exchange, {more} more for each further "
        f"key_by, and {fewest} otherwise",
    )
    yield _check_workers(context, found)
    obstacle = obstacle_to_pumps(context, lambda: found, needed)
    if obstacle is None and parallelism > 1:
        obstacle = SelfTest(context).failure()
    if obstacle is None:
        yield ok("exchange", "pipelined: a step takes milliseconds")
    else:
        yield warning("exchange", "jobs: each step is a Spark job", obstacle)


def _check_workers(context: SparkContext, tasks: int) -> Check:
    """Ask as many workers as there are task slots, most likely on all executors."""
    try:
        asked = context.parallelize(range(tasks), tasks)
        found = asked.map(lambda _: tuple(versions().items())).distinct().collect()
    except Exception as failure:
        advice = "install Tidegate for the Python of the workers, or ship it with spark.archives"
        return missing("workers", reason_of(failure), advice)
    for each in found:
        if (difference := mismatch(dict(each))) is not None:
            reason, _, advice = difference.partition("; ")
            return missing("workers", reason.removeprefix("it runs "), advice)
    return ok("workers", ", ".join(f"{name} {version}" for name, version in found[0]))
