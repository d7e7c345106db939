"""Starts the Python of executors before a slot needs it.

An executor starts the process from which it forks its Python workers with the first task, and the
imports of that process take seconds. A slot that loses its executor would wait for them on one
that has had no slot before.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Final

from pyspark import RDD, InheritableThread
from pyspark.serializers import NoOpSerializer

from tidegate.exchange.pipelined.requirements import WORKER_SETTINGS
from tidegate.transport.spark_errors import reason_of

if TYPE_CHECKING:
    from pyspark import SparkContext

_log = logging.getLogger("tidegate.spark")
_LOOK_SECONDS: Final = 0.5
_SETTLED_SECONDS: Final = 20.0
"""After this time, slots no longer need the processors for their own start."""
_ANYWHERE: Final[Mapping[str, str]] = {"": ""}
_starting = threading.Lock()
_watched: set[str] = set()
"""The Spark applications whose workers are kept warm."""


def warm_workers(context: SparkContext, *, is_local: bool) -> None:
    """Start the Python of all executors, soon and when they join, until Spark is stopped.

    Does nothing in a session whose workers import nothing ahead.
    """
    conf = context.getConf()
    if any(conf.get(key) != value for key, value in WORKER_SETTINGS.items()):
        return
    with _starting:
        if context.applicationId in _watched:
            return
        _watched.add(context.applicationId)
    if is_local:
        target: Callable[[SparkContext], None] = _warm_one
    else:
        target = _watch
    InheritableThread(target=target, args=(context,), name="tidegate-warm", daemon=True).start()


def newcomers(
    executors: Callable[[], Mapping[str, str]], ids: Iterable[str], known: set[str]
) -> Mapping[str, str]:
    """The executors, with their hosts, that were not known; asks for hosts only if there are."""
    present = set(ids)
    known.intersection_update(present)
    if present <= known:
        return {}
    found = {id: host for id, host in executors().items() if id in present - known}
    known.update(found)
    return found


def _warm_one(context: SparkContext) -> None:
    _run_on(context, _ANYWHERE)


def _watch(context: SparkContext) -> None:
    known: set[str] = set()
    time.sleep(_SETTLED_SECONDS)
    while context._jsc is not None:
        try:
            joined = context._jsc.sc().getExecutorIds().mkString(",")
            found = newcomers(lambda: _hosts(context), filter(None, joined.split(",")), known)
        except Exception as failure:  # Spark is being stopped, or out of reach for a moment
            _log.debug("no executors are listed: %s", reason_of(failure))
        else:
            if found:
                _run_on(context, found)
        time.sleep(_LOOK_SECONDS)


def _hosts(context: SparkContext) -> dict[str, str]:
    """The hosts of all executors, by their ids."""
    listed = context._jsc.sc().statusStore().executorList(True)
    places = {each.id(): each.hostPort() for each in map(listed.apply, range(listed.size()))}
    # An executor that has just joined has no port yet.
    return {id: place.rpartition(":")[0] or place for id, place in places.items()}


def _run_on(context: SparkContext, executors: Mapping[str, str]) -> None:
    """Run a task on each executor; one that is gone or busy is left alone."""
    try:
        context.setJobGroup("tidegate-warm", "starts Python workers", interruptOnCancel=True)
        _tasks(context, executors).mapPartitions(_nothing).collect()
    except Exception as failure:
        _log.debug("no workers were started ahead: %s", reason_of(failure))


def _tasks(context: SparkContext, executors: Mapping[str, str]) -> RDD[bytes]:
    if executors is _ANYWHERE:
        return context.parallelize([b""], 1)
    jvm = context._jvm
    assert jvm is not None
    to_seq = jvm.org.apache.spark.api.python.PythonUtils.toSeq
    places = [
        jvm.scala.Tuple2(bytearray(1), to_seq([f"executor_{host}_{id}"]))
        for id, host in executors.items()
    ]
    kind = jvm.scala.reflect.ClassTag.apply(jvm.java.lang.Class.forName("[B"))
    tasks = context._jsc.sc().makeRDD(to_seq(places), kind).toJavaRDD()
    return RDD(tasks, context, NoOpSerializer())


def _nothing(partition: Iterable[object]) -> Iterator[object]:
    """Not reading the partition ends the worker, and only the process that forks them stays."""
    return iter(())
