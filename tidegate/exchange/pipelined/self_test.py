"""Tries out Spark's streaming shuffle before a job relies on it."""

from __future__ import annotations

import logging
from concurrent.futures import Future
from typing import TYPE_CHECKING, Final
from uuid import uuid4

from pyspark import InheritableThread

from tidegate.exchange.pipelined.admission import once_there_is_room
from tidegate.transport.spark_errors import reason_of, spark_may_be_gone

if TYPE_CHECKING:
    from pyspark import SparkContext

_log = logging.getLogger("tidegate.spark")
_TASKS: Final = 2
_FRAMES: Final = _TASKS**2
_LONGEST_SECONDS: Final = 60.0
_TRIES: Final = 3
"""An executor may be lost meanwhile, which says nothing about the shuffle."""
_FAILED: Final = "a test of the streaming shuffle failed: {}"
_passed: set[str] = set()
"""The Spark applications in which it works."""


class SelfTest:
    """Sends some frames on a thread of its own. What works is not tried again."""

    def __init__(self, context: SparkContext) -> None:
        self._context = context
        self._group = f"tidegate-self-test-{uuid4()}"
        self._arrived: Future[int | None] = Future()
        self._is_given_up = False
        if context.applicationId in _passed:
            self._arrived.set_result(_FRAMES)
        else:
            InheritableThread(target=self._run, name=self._group, daemon=True).start()

    def failure(self) -> str | None:
        """Wait for its end; returns what went wrong, as text for the user."""
        try:
            arrived = self._arrived.result(_LONGEST_SECONDS)
        except TimeoutError:
            self._is_given_up = True
            with spark_may_be_gone():
                self._context.cancelJobGroup(self._group)
            return _FAILED.format(f"nothing arrived within {_LONGEST_SECONDS:.0f} s")
        except Exception as failure:
            return _FAILED.format(reason_of(failure))
        if arrived != _FRAMES:
            return _FAILED.format(f"{arrived} of {_FRAMES} frames arrived")
        _passed.add(self._context.applicationId)
        return None

    def _run(self) -> None:
        try:
            self._context.setJobGroup(self._group, "a test of the streaming shuffle", True)
            self._arrived.set_result(self._try_out(_TRIES))
        except Exception as failure:
            self._arrived.set_exception(failure)

    def _try_out(self, tries: int) -> int | None:
        jvm, spark = self._context._jvm, self._context._jsc.sc()
        assert jvm is not None
        pumps = jvm.tidegate.exchange.Pumps
        try:
            return once_there_is_room(lambda: pumps.tryOut(spark, _TASKS), _LONGEST_SECONDS / 2)
        except Exception as failure:
            if tries == 1 or self._is_given_up:
                raise
            _log.info("a test of the streaming shuffle is repeated: %s", reason_of(failure))
        return self._try_out(tries - 1)
