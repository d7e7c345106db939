"""Chooses the exchange for the steps of a job, and falls back if the fast one breaks."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from py4j.protocol import Py4JError

from tidegate.core.errors import UnsuitableSpark
from tidegate.core.ids import Address, JobId, PipelineId, SlotIndex
from tidegate.core.modes import ExchangeMode
from tidegate.exchange.contract import Exchange, NoRoom, StepAnswer, StepBroken, StepCanceled
from tidegate.exchange.pipelined.exchange import PipelinedExchange
from tidegate.exchange.pipelined.requirements import (
    SHUFFLE_SETTINGS,
    pumps_for,
    task_slots_for,
)
from tidegate.exchange.pipelined.self_test import SelfTest
from tidegate.exchange.shuffle import ShuffleExchange
from tidegate.graph.job_graph import JobGraph, Pipeline
from tidegate.protocol.messages import StepOutcome, StepRequest

if TYPE_CHECKING:
    from pyspark import SparkContext

_log = logging.getLogger("tidegate.spark")
_RULED_OUT: Final = {
    "spark.authenticate": "Spark's streaming shuffle does not authenticate",
    "spark.network.crypto.enabled": "Spark's streaming shuffle does not encrypt",
    "spark.ssl.rpc.enabled": "Spark's streaming shuffle does not encrypt",
    "spark.dynamicAllocation.enabled": "executors that come and go would break the endless job",
    "spark.speculation": "a speculative copy would break the endless job",
}
_PRINTED: Final = "`tidegate doctor --spark-conf` prints the required settings"
_WRITER: Final = "org.apache.spark.shuffle.streaming.StreamingShuffleWriter"
_PIPELINED: Final = "steps travel over Spark's streaming shuffle"
_NOT_PIPELINED: Final = "steps are Spark jobs, not pipelined: %s"
_MOST_BREAKS: Final = 2
"""In a row."""
_MOST_RECENT_BREAKS: Final = 10
_RECENT_SECONDS: Final = 300.0


def create_exchange(
    mode: ExchangeMode,
    context: SparkContext,
    available: Callable[[], int],
    graph: JobGraph,
    job_id: JobId,
    secret: bytes,
) -> tuple[Exchange, int]:
    """The exchange of a job, and how many tasks it keeps running.

    `available` counts the free task slots, which may take a while on a cluster.

    Raises:
        UnsuitableSpark: the settings require the fast exchange, but this Spark does not support it.
    """
    jobs = ShuffleExchange(context, job_id, secret)
    if mode is ExchangeMode.JOBS:
        return jobs, 0
    pumps, is_forced = pumps_for(graph), mode is ExchangeMode.PIPELINED
    obstacle = obstacle_to_pumps(context, available, task_slots_for(graph))
    if obstacle is None:
        _silence_writers(context)
        failure = SelfTest(context).failure if pumps else lambda: None
        fast = PipelinedExchange(context, job_id, secret)
        if not is_forced:
            return FallbackExchange(fast, jobs, failure), pumps
        obstacle = failure()
        if obstacle is None:
            _log.info(_PIPELINED)
            return fast, pumps
    if is_forced:
        raise UnsuitableSpark("tidegate.exchange", mode.value, obstacle)
    _log.info(_NOT_PIPELINED, obstacle)
    return jobs, 0


def _silence_writers(context: SparkContext) -> None:
    """Silence Spark's warning, every second, that frames are larger than their buffer."""
    with suppress(Py4JError):
        assert context._jvm is not None
        log4j = context._jvm.org.apache.logging.log4j
        log4j.core.config.Configurator.setLevel(_WRITER, log4j.Level.OFF)


def obstacle_to_pumps(
    context: SparkContext, available: Callable[[], int], needed: int
) -> str | None:
    """Why the fast exchange cannot be tried at all, as text for the user."""
    conf = context.getConf()
    for key, reason in _RULED_OUT.items():
        if (conf.get(key) or "false").lower() == "true":
            return f"{key} is set, but {reason}"
    if any(conf.get(key) is None for key in SHUFFLE_SETTINGS):
        return f"the session lacks settings of the streaming shuffle; {_PRINTED}"
    jvm = context._jvm
    assert jvm is not None
    try:
        jvm.java.lang.Class.forName("org.apache.spark.PipelinedShuffleDependency")
    except Py4JError:
        return f"Spark {context.version} has no streaming shuffle; Spark 4.3 has one"
    try:
        loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
        loader.loadClass("tidegate.exchange.Pumps")
    except Py4JError:
        return f"the session lacks a jar of Tidegate; {_PRINTED}"
    if (found := available()) < needed:
        return f"Spark has {found} task slots for the job, but it needs {needed}"
    return None


class FallbackExchange:
    """Uses the fast exchange, unless it fails its test, until it breaks too often.

    That is: twice without completing a step of the same pipeline in between, several times within
    some minutes, or once for lack of room.
    """

    def __init__(
        self,
        fast: Exchange,
        steady: Exchange,
        test: Callable[[], str | None] | None = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._fast = fast
        self._current, self._steady = fast, steady
        self._now = now
        self._changed = threading.Condition()
        """Held for what the steps wait for until the test is over."""
        self._is_tested = test is None
        self._has_ended = False
        self._waiting: set[PipelineId] = set()
        self._in_a_row: dict[PipelineId, int] = {}
        self._recent: deque[float] = deque(maxlen=_MOST_RECENT_BREAKS)
        self._lock = threading.Lock()
        if test is not None:
            threading.Thread(
                target=self._await_test, args=(test,), name="tidegate-test", daemon=True
            ).start()

    def run_step(
        self,
        pipeline: Pipeline,
        request: StepRequest,
        slots: Mapping[SlotIndex, Address],
        answer: StepAnswer,
    ) -> None:
        """See `tidegate.exchange.contract.Exchange`."""
        self._wait_for_test(pipeline)
        try:
            self._current.run_step(pipeline, request, slots, self._noted(pipeline, answer))
        except StepBroken as failure:
            self._note(pipeline, failure)
            raise

    def try_step(
        self,
        pipeline: Pipeline,
        request: StepRequest,
        slots: Mapping[SlotIndex, Address],
        answer: StepAnswer,
    ) -> bool:
        return self._is_tested and self._current.try_step(
            pipeline, request, slots, self._noted(pipeline, answer)
        )

    def _noted(self, pipeline: Pipeline, answer: StepAnswer) -> StepAnswer:
        def noted(outcome: Sequence[StepOutcome] | StepBroken) -> None:
            self._note(pipeline, outcome if isinstance(outcome, StepBroken) else None)
            answer(outcome)

        return noted

    def _wait_for_test(self, pipeline: Pipeline) -> None:
        """The test runs while slots start; the first steps wait for it."""
        if self._is_tested:
            return
        with self._changed:
            self._waiting.add(pipeline.id)
            self._changed.wait_for(
                lambda: self._is_tested or self._has_ended or pipeline.id not in self._waiting
            )
            if self._has_ended or pipeline.id not in self._waiting:
                raise StepCanceled("the step was canceled")
            self._waiting.remove(pipeline.id)

    def _await_test(self, test: Callable[[], str | None]) -> None:
        try:
            failure = test()
            if failure is None:
                _log.info(_PIPELINED)
            else:
                self._current = self._steady
                _log.info(_NOT_PIPELINED, failure)
        finally:
            with self._changed:
                self._is_tested = True
                self._changed.notify_all()

    def _note(self, pipeline: Pipeline, failure: StepBroken | None) -> None:
        if self._current is not self._fast or isinstance(failure, StepCanceled):
            return
        if failure is None:
            self._in_a_row.pop(pipeline.id, None)
            return
        with self._lock:
            in_a_row = self._in_a_row[pipeline.id] = self._in_a_row.get(pipeline.id, 0) + 1
            self._recent.append(self._now())
            is_full = len(self._recent) == _MOST_RECENT_BREAKS
            is_often = is_full and self._recent[-1] - self._recent[0] < _RECENT_SECONDS
        if in_a_row < _MOST_BREAKS and not is_often and not isinstance(failure, NoRoom):
            return
        self._current = self._steady
        _log.warning(
            "from now on, steps are Spark jobs: the streaming shuffle broke %d time(s), the last "
            "time because %s",
            len(self._recent) if is_often else in_a_row,
            failure,
        )
        # Free the room for the steps of other pipelines; ending it takes a while.
        threading.Thread(target=self._fast.end_steps, name="tidegate-left", daemon=True).start()

    def cancel_step(self, pipeline: Pipeline) -> None:
        with self._changed:
            self._waiting.discard(pipeline.id)
            self._changed.notify_all()
        self._fast.cancel_step(pipeline)
        self._steady.cancel_step(pipeline)

    def end_steps(self) -> None:
        with self._changed:
            self._has_ended = True
            self._changed.notify_all()
        self._fast.end_steps()
        self._steady.end_steps()
