"""Steps as Spark jobs, without Spark."""

import queue
import threading
from types import SimpleNamespace

import pytest
from pyspark.errors import PySparkException

from tests.programs import PATIENCE
from tidegate.exchange.contract import StepBroken
from tidegate.exchange.shuffle import ShuffleExchange
from tidegate.protocol.messages import StepRequest

ONE_SLOT = SimpleNamespace(id=0, slots=1, levels=1)


class Spark:
    """Knows the groups of its jobs, and does not answer when it is asked to cancel one."""

    def __init__(self):
        self.groups = []
        self.canceled = queue.SimpleQueue()
        self.answers = threading.Event()

    def setJobGroup(self, group, description, interruptOnCancel):  # noqa: N803
        self.groups.append(group)
        raise PySparkException("it runs no jobs")

    def cancelJobGroup(self, group):
        self.canceled.put(group)
        self.answers.wait(PATIENCE)


def run_step(steps, step):
    request = StepRequest(pipeline=0, attempt=1, step=step, slice_records=1, slice_bytes=1)
    with pytest.raises(StepBroken):
        steps.run_step(ONE_SLOT, request, {}, print)


def test_canceling_a_step_waits_for_nobody_and_concerns_no_later_step():
    """The caller is the job master, whose slots would lose their leases."""
    spark = Spark()
    steps = ShuffleExchange(spark, "a-job", b"secret")
    steps.cancel_step(ONE_SLOT)
    run_step(steps, 1)
    canceling = threading.Thread(target=steps.cancel_step, args=(ONE_SLOT,), daemon=True)
    canceling.start()
    canceling.join(PATIENCE / 4)
    assert not canceling.is_alive()
    run_step(steps, 2)
    first, second = spark.groups
    assert first != second
    assert spark.canceled.get(timeout=PATIENCE) == first
    assert spark.canceled.empty()
    spark.answers.set()
