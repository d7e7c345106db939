import queue
import re
import threading
import time
from collections import Counter
from typing import ClassVar

import pytest

from tests.jobs import RESTARTS, SMALL_STEPS
from tests.programs import (
    PATIENCE,
    collected,
    keyed,
    mapped,
    read,
    wait_until,
)
from tests.taps import Tap
from tidegate.connectors.collection import CollectionSource
from tidegate.connectors.files.formats import TextLineFormat
from tidegate.connectors.files.source import FileSource
from tidegate.connectors.sequence import NumberSequenceSource
from tidegate.connectors.source import InputStatus, Poll, SplitEnumerator
from tidegate.core.errors import (
    ExternalError,
    InternalError,
    JobCanceled,
    KafkaFailed,
    SlotLost,
    StepFailed,
    UnreadableInput,
    UserError,
    UserFunctionError,
)
from tidegate.driver.cluster import FromSlot, SlotJobEnded
from tidegate.exchange.contract import StepBroken
from tidegate.graph.logical import Upstream
from tidegate.graph.partitioning import Rebalance
from tidegate.operators.functions import MapFunction
from tidegate.protocol.job_status import JobStatus
from tidegate.protocol.messages import DriverHeartbeat, Wake
from tidegate.testing import mini_cluster
from tidegate.testing.mini_cluster import MiniCluster

ENDLESS = NumberSequenceSource(0, 10**15)


class Watched(MapFunction):
    """A function that tests can watch, and that does what they say."""

    calls: ClassVar = Counter()
    behaviour: ClassVar = {}

    def __init__(self, name="watched"):
        self.name = name

    def did(self, what, value=None):
        self.calls[self.name, what] += 1
        action = self.behaviour.get((self.name, what))
        return value if action is None else action(value)

    def open(self, runtime_context):
        self.did("open")

    def map(self, value):
        return self.did("map", value)

    def close(self):
        self.did("close")


@pytest.fixture(autouse=True)
def watched():
    Watched.calls = Counter()
    Watched.behaviour = {}
    return Watched


def raise_(error):
    raise error


NOT_YET = ValueError("not yet")


def fail_times(count, error=NOT_YET):
    """Raises so often, then returns what it is given."""
    left = [count]

    def action(value):
        if left[0] > 0:
            left[0] -= 1
            raise error
        return value

    return action


def exchanged(source, name="watched"):
    return collected(mapped(Watched(name), Upstream(source, Rebalance()), name=name), name)


def test_a_bounded_job_finishes_with_all_its_records(start):
    job = start(exchanged(read(range(20))), settings=SMALL_STEPS)
    assert job.result() is None
    assert sorted(job.records()) == list(range(20))
    assert job.status is JobStatus.FINISHED
    progress = job.master.progress()
    assert (progress.records_in, progress.records_out, progress.steps) == (20, 20, 1)


def test_all_sinks_count_what_they_receive_wherever_they_are_chained(start):
    numbers = mapped(Watched("watched"), read(range(20)))
    copied = collected(Upstream(numbers, Rebalance()), "copied")
    job = start(collected(numbers, "kept"), copied, settings=SMALL_STEPS)
    job.result()
    assert job.master.progress().records_out == 40
    first, _ = job.master.vertices()
    assert sum(subtask.records_out for subtask in first.subtasks) == 40, "20 of them sent on"


def test_functions_are_opened_and_closed_once_in_every_subtask(start, watched):
    start(exchanged(read(range(20))), settings=SMALL_STEPS, parallelism=3).result()
    assert watched.calls["watched", "open"] == watched.calls["watched", "close"] == 3


def test_a_user_exception_is_the_result_of_the_job(start, watched):
    watched.behaviour["watched", "map"] = lambda value: raise_(KeyError(value))
    job = start(exchanged(read([7])))
    failure = job.fails(UserFunctionError)
    assert (failure.args[0], failure.cause) == ("watched", "KeyError: 7")
    assert job.status is JobStatus.FAILED
    assert watched.calls["watched", "close"] == 2, "also after a failure"


def test_a_restart_strategy_gives_the_job_another_chance(start, watched):
    watched.behaviour["watched", "map"] = fail_times(2)
    job = start(exchanged(read(range(10))), settings=RESTARTS, parallelism=1)
    job.result()
    assert job.records() == list(range(10))
    assert watched.calls["watched", "open"] == watched.calls["watched", "close"] == 3


def test_the_last_failure_is_the_result_when_the_strategy_gives_up(start, watched):
    watched.behaviour["watched", "map"] = lambda value: raise_(ValueError("again"))
    job = start(exchanged(read(range(4))), settings=RESTARTS)
    assert job.fails(UserFunctionError).cause == "ValueError: again"
    assert watched.calls["watched", "open"] == 6


def test_a_function_that_cannot_be_opened_fails_the_job(start, watched):
    watched.behaviour["watched", "open"] = lambda _: raise_(OSError("no route"))
    assert start(exchanged(read([1]))).fails(UserFunctionError).cause == "OSError: no route"


def test_a_function_that_cannot_be_opened_at_the_start_is_not_tried_again(start, watched):
    watched.behaviour["watched", "open"] = fail_times(1)
    job = start(exchanged(read(range(4))), settings=RESTARTS, parallelism=1)
    job.fails(UserFunctionError)
    assert watched.calls["watched", "open"] == 1


def test_a_source_that_finds_nothing_to_read_at_the_start_ends_the_job(start, tmp_path):
    source = FileSource(str(tmp_path / "missing"), TextLineFormat())
    job = start(exchanged(read(source)), settings=RESTARTS)
    assert "missing" in str(job.fails(UnreadableInput))
    assert job.master.chronicle.restarts == 0


class Unanswered(SplitEnumerator):
    """Looks for its splits in the background, and fails after some steps."""

    asked = 0

    def next_splits(self, parallelism):
        self.asked += 1
        if self.asked > 3:
            raise KafkaFailed("broker:9092", "looking for partitions", "no route")
        return {}

    def is_ready(self):
        return False

    def is_exhausted(self):
        return False


@pytest.mark.slow
def test_a_source_that_has_not_found_out_what_to_read_has_not_started(start):
    source = CollectionSource([])
    source.create_enumerator = Unanswered
    job = start(exchanged(read(source)), settings=RESTARTS)
    job.fails(KafkaFailed)
    assert job.master.chronicle.restarts == 0


def test_a_restart_says_which_it_is_when_it_comes_and_why(start, watched, caplog):
    watched.behaviour["watched", "map"] = lambda value: raise_(KeyError(value))
    start(exchanged(read([7])), settings=RESTARTS, parallelism=1).fails(UserFunctionError)
    first, second = [each for each in caplog.messages if "restart" in each][:2]
    assert first.startswith("pipeline 0 failed, restart 1 of at most 2 in 0.0 s:\n")
    assert "KeyError: 7" in first
    assert second.startswith("pipeline 0 failed, restart 2 of at most 2 in 0.0 s:\n")
    assert "failed on this record 2 times" in second


def test_a_job_that_backs_off_shows_it(start, watched):
    watched.behaviour["watched", "map"] = lambda value: raise_(KeyError(value))
    slow = {**RESTARTS, "restart-strategy.fixed-delay.delay": "1 h"}
    job = start(exchanged(read([7])), settings=slow, parallelism=1)
    wait_until(lambda: job.master.progress().restart is not None)
    assert re.fullmatch(r"restart 1 of at most 2 in 3[56]\d\d s", job.master.progress().restart)


def test_a_function_that_fails_while_it_is_closed_fails_the_job(start, watched):
    watched.behaviour["watched", "close"] = fail_times(1, OSError("could not flush"))
    job = start(exchanged(read(range(4))))
    assert job.fails(UserFunctionError).cause == "OSError: could not flush"


def test_closing_may_take_its_time_when_nobody_is_in_a_hurry(start, watched):
    release = threading.Event()
    watched.behaviour["watched", "close"] = lambda _: release.wait(PATIENCE)
    job = start(exchanged(read(range(4))), settings={"task.cancellation.timeout": "1 ms"})
    wait_until(lambda: watched.calls["watched", "close"])
    with pytest.raises(TimeoutError):
        job.master.result.result(0.3)
    release.set()
    job.result()


def test_cancel_ends_an_endless_job(start, watched):
    job = start(exchanged(read(ENDLESS)), settings=SMALL_STEPS)
    wait_until(lambda: len(job.records()) > 50)
    assert job.status is JobStatus.RUNNING
    job.master.cancel()
    job.fails(JobCanceled)
    assert job.status is JobStatus.CANCELED
    assert watched.calls["watched", "close"] == 2


def test_cancel_before_the_slots_are_there(start):
    job = start(exchanged(read(ENDLESS)))
    job.master.cancel()
    job.fails(JobCanceled)


def test_cancel_does_not_wait_for_user_code_that_never_returns(start, watched):
    release, returned = threading.Event(), []
    watched.behaviour["watched", "map"] = lambda value: returned.append(release.wait(PATIENCE))
    job = start(exchanged(read(ENDLESS)), settings={"task.cancellation.timeout": "50 ms"})
    wait_until(lambda: watched.calls["watched", "map"])
    job.master.cancel()
    job.fails(JobCanceled)
    assert not returned
    release.set()


def test_cancelling_a_job_that_has_ended_changes_nothing(start):
    job = start(exchanged(read([1])))
    job.result()
    job.master.cancel()
    assert job.status is JobStatus.FINISHED


def test_a_lost_slot_fails_the_job(start):
    job = start(exchanged(read(ENDLESS)), settings=SMALL_STEPS)
    wait_until(job.records)
    job.cluster.kill(1)
    assert job.fails(SlotLost).args[0] == 1
    assert job.status is JobStatus.FAILED


def test_a_lost_slot_is_started_again(start):
    job = start(exchanged(read(range(3000))), settings={**SMALL_STEPS, **RESTARTS})
    wait_until(job.records)
    job.cluster.kill(0)
    job.result()
    assert set(job.records()) == set(range(3000))


def test_a_region_that_fails_leaves_the_others_alone(start, watched):
    watched.behaviour["bad", "map"] = fail_times(1)
    job = start(
        exchanged(read(range(10)), "bad"), exchanged(read(range(10)), "good"), settings=RESTARTS
    )
    job.result()
    assert watched.calls["good", "open"] == 2
    assert watched.calls["bad", "open"] == 4


class BreakingExchange(MiniCluster):
    """Steps break for reasons of their own, now and then."""

    def __init__(self, *errors):
        super().__init__()
        self.errors = list(errors)
        self.steps = []

    def run_step(self, pipeline, request, slots, answer):
        self.steps.append(request.step)
        if self.errors:
            raise self.errors.pop(0)
        super().run_step(pipeline, request, slots, answer)


def test_a_step_that_spark_could_not_run_is_run_again_under_its_number(start):
    cluster = BreakingExchange(StepBroken("fetch failed"), StepBroken("fetch failed"))
    job = start(exchanged(read(range(5))), cluster=cluster)
    job.result()
    assert sorted(job.records()) == [0, 1, 2, 3, 4]
    assert cluster.steps == [1, 1, 1]


def test_a_step_is_not_tried_for_ever(start):
    cluster = BreakingExchange(*[StepBroken("no executor")] * 9)
    job = start(exchanged(read([1])), cluster=cluster, settings={"tidegate.step.attempts": 2})
    assert job.fails(StepFailed).args == (0, 1, 2, "no executor")
    assert cluster.steps == [1, 1]


def test_an_exchange_that_fails_as_nobody_expects_fails_the_step(start):
    cluster = BreakingExchange(*[AttributeError("'NoneType' has no 'sc'")] * 9)
    job = start(exchanged(read([1])), cluster=cluster)
    assert "AttributeError: 'NoneType' has no 'sc'" in str(job.fails(StepFailed))


class BadSource(CollectionSource):
    def __init__(self, where):
        super().__init__([1, 2])
        self.where = where

    def create_enumerator(self):
        enumerator = super().create_enumerator()
        setattr(enumerator, self.where, lambda *_: raise_(OSError("no broker")))
        return enumerator


@pytest.mark.parametrize("where", ["open", "next_splits", "is_exhausted"])
def test_a_source_that_cannot_list_its_splits_fails_the_job(start, where):
    failure = start(exchanged(read(BadSource(where)))).fails(UserError)
    assert "could not list its splits: OSError: no broker" in str(failure)


def test_an_enumerator_that_cannot_be_closed_does_not_hold_up_the_result(start):
    job = start(exchanged(read(BadSource("close"))))
    assert job.result() is None


class NoSlots(MiniCluster):
    def launch(self, slot, number):
        """Nothing ever starts."""


def test_a_job_does_not_wait_for_ever_for_its_slots(start):
    job = start(
        exchanged(read([1])), cluster=NoSlots(), settings={"tidegate.slot.start-timeout": "50 ms"}
    )
    failure = str(job.fails(ExternalError))
    assert "waited too long for resources" in failure
    assert "slot 0: Spark has not started its task" in failure


class StartsOnce(MiniCluster):
    def launch(self, slot, number):
        if number == 1:
            super().launch(slot, number)


def test_a_job_that_waits_for_a_slot_keeps_no_core_busy(start):
    job = start(exchanged(read(ENDLESS)), cluster=StartsOnce(), settings=RESTARTS)
    wait_until(lambda: job.status is JobStatus.RUNNING)
    job.cluster.kill(0)
    keeps_no_core_busy(job, JobStatus.RESTARTING)


def keeps_no_core_busy(job, status):
    wait_until(lambda: job.status is status)
    turns = []
    job.master.chronicle.is_now = lambda *_: turns.append(1)
    threading.Event().wait(0.2)
    assert len(turns) < 50


def test_a_job_that_waits_for_its_restart_keeps_no_core_busy(start, watched):
    watched.behaviour["watched", "map"] = fail_times(1)
    patient = {**RESTARTS, "restart-strategy.fixed-delay.delay": "1 h", **SMALL_STEPS}
    job = start(exchanged(read(ENDLESS)), settings=patient)
    keeps_no_core_busy(job, JobStatus.RESTARTING)


class FalseStarts(MiniCluster):
    launches = 0

    def launch(self, slot, number):
        self.launches += 1
        self.post(SlotJobEnded(slot, "ModuleNotFoundError: No module named 'numpy'"))


def test_slots_that_end_before_they_are_ready_fail_the_job_with_their_reason(start):
    cluster = FalseStarts()
    job = start(exchanged(read([1])), cluster=cluster, parallelism=1)
    failure = job.fails(ExternalError)
    assert str(failure) == (
        "slot 0 cannot be started: ModuleNotFoundError: No module named 'numpy'"
    )
    assert cluster.launches == 3


class LateFalseStarts(FalseStarts):
    """Slots start once, and again only after three tries."""

    def launch(self, slot, number):
        if 1 < number <= 4:
            super().launch(slot, number)
        else:
            MiniCluster.launch(self, slot, number)


@pytest.mark.parametrize("attempts", [1, 2])
def test_the_restart_strategy_decides_about_slots_that_cannot_be_started_again(start, attempts):
    cluster, tap = LateFalseStarts(), Tap(range(20))
    settings = {**RESTARTS, "restart-strategy.fixed-delay.attempts": attempts}
    job = start(exchanged(read(tap)), cluster=cluster, settings=settings)
    tap.let(10)
    wait_until(lambda: len(job.records()) == 10)
    cluster.kill(0)
    tap.open()
    if attempts == 1:
        assert "slot 0 cannot be started" in str(job.fails(ExternalError))
    else:
        job.result()
        assert set(job.records()) == set(range(20))
    assert cluster.launches == 3


class Unanswering(MiniCluster):
    """A Spark that does not answer what is asked for a launch, from when the test says so."""

    def __init__(self, question):
        super().__init__(heartbeat_seconds=0.02)
        self.question = question
        self.is_deaf = False
        self.is_asked, self.answers = threading.Event(), threading.Event()
        self.answered = Counter()

    def asked(self, question):
        if self.is_deaf and question == self.question:
            self.is_asked.set()
            self.answers.wait(PATIENCE)

    def shortage(self):
        self.asked("shortage")

    def launch(self, slot, number):
        self.asked("launch")
        super().launch(slot, number)

    def send(self, incarnation, message):
        if isinstance(message, DriverHeartbeat):
            self.answered[incarnation.slot] += 1
        super().send(incarnation, message)


@pytest.mark.parametrize("question", ["shortage", "launch"])
def test_slots_keep_their_leases_while_spark_does_not_answer_about_another(start, question):
    cluster = Unanswering(question)
    job = start(exchanged(read(ENDLESS)), cluster=cluster, settings={**RESTARTS, **SMALL_STEPS})
    wait_until(lambda: job.status is JobStatus.RUNNING)
    cluster.is_deaf = True
    cluster.kill(0)
    assert cluster.is_asked.wait(PATIENCE)
    try:
        seen = cluster.answered[1]
        wait_until(lambda: cluster.answered[1] > seen, PATIENCE / 4)
    finally:
        cluster.answers.set()
    wait_until(lambda: job.status is JobStatus.RUNNING)


class Broken(MiniCluster):
    def shortage(self):
        raise RuntimeError("no such method")


def test_a_fault_at_a_launch_fails_the_job(start):
    failure = start(exchanged(read([1])), cluster=Broken()).fails(InternalError)
    assert str(failure) == "RuntimeError: no such method"


def test_slots_of_other_versions_are_refused(start, monkeypatch):
    monkeypatch.setattr(
        mini_cluster, "versions", lambda: {"Python": "2.7", "tidegate": "0", "pyarrow": "1"}
    )
    failure = str(start(exchanged(read([1]))).fails(ExternalError))
    assert "Python 2.7 instead of 3." in failure
    assert "install the driver's versions" in failure


class Unclosable(MiniCluster):
    def close(self):
        super().close()
        raise RuntimeError("Spark is gone")


def test_callers_get_the_result_even_if_something_cannot_be_released(start):
    assert start(exchanged(read([1])), cluster=Unclosable()).result() is None


class Unendable(MiniCluster):
    is_closed = False

    def end_steps(self):
        super().end_steps()
        raise RuntimeError("Spark is gone")

    def close(self):
        super().close()
        self.is_closed = True


def test_what_cannot_be_released_keeps_nothing_else(start):
    cluster = Unendable()
    start(exchanged(read([1])), cluster=cluster).result()
    assert cluster.is_closed


class Unstartable(MiniCluster):
    def start(self, post):
        raise RuntimeError("no network")


def test_a_fault_of_the_driver_itself_ends_the_job(start):
    failure = start(exchanged(read([1])), cluster=Unstartable()).fails(InternalError)
    assert str(failure) == "RuntimeError: no network"


@pytest.mark.slow
def test_a_job_outlives_the_lease_of_its_slots(start, watched):
    """The slots of the mini cluster beat once a second."""
    job = start(
        exchanged(read(ENDLESS)),
        settings={**SMALL_STEPS, "heartbeat.interval": "1 s", "heartbeat.timeout": "2 s"},
    )
    started = time.monotonic()
    wait_until(lambda: time.monotonic() - started > 4 or job.master.result.done())
    assert job.status is JobStatus.RUNNING


def test_two_streams_in_one_job_are_stepped_apart(start):
    endless = collected(mapped(Watched("endless"), keyed(abs, read(ENDLESS))), "endless")
    job = start(exchanged(read(range(5)), "short"), endless, settings=SMALL_STEPS)
    wait_until(lambda: Watched.calls["short", "close"] == 2)
    seen = Watched.calls["endless", "map"]
    wait_until(lambda: Watched.calls["endless", "map"] > seen + 100)
    assert job.status is JobStatus.RUNNING


class Late(CollectionSource):
    """Has its second record only once the test lets it."""

    is_there = threading.Event()

    def __init__(self):
        super().__init__(["early", "late"])

    def create_reader(self, context):
        reader = super().create_reader(context)
        poll, seen = reader.poll, []

        def poll_one(max_records):
            if seen and not self.is_there.is_set():
                return Poll(None, InputStatus.NOTHING_AVAILABLE)
            found = poll(1)
            seen.append(found)
            still_to_come = len(seen) == 1
            return Poll(
                found.batch, InputStatus.NOTHING_AVAILABLE if still_to_come else found.status
            )

        reader.poll = poll_one
        reader.is_available = self.is_there.is_set
        return reader


class SlowToReturn(MiniCluster):
    """The step is through in the slots long before the driver hears of it."""

    def __init__(self):
        super().__init__()
        self.calls = queue.SimpleQueue()

    def start(self, post):
        def watch(event):
            post(event)
            if isinstance(event, FromSlot) and isinstance(event.message, Wake):
                self.calls.put(event)

        super().start(watch)

    def run_step(self, pipeline, request, slots, answer):
        def answer_late(outcomes):
            if request.step == 2:  # the second follows the first without a call
                Late.is_there.set()
                self.calls.get(timeout=PATIENCE)
            answer(outcomes)

        super().run_step(pipeline, request, slots, answer_late)


def test_a_call_that_comes_before_the_step_is_seen_to_end_is_not_lost(start):
    Late.is_there.clear()
    job = start(exchanged(read(Late(), parallelism=1)), cluster=SlowToReturn(), parallelism=1)
    job.result()
    assert job.records() == ["early", "late"]


class StuckOnce(MapFunction):
    """In the second subtask it does not return from its first record, once."""

    is_stuck = threading.Event()
    release = threading.Event()

    def open(self, context):
        self.subtask = context.get_index_of_this_subtask()

    def map(self, value):
        if self.subtask == 1 and not StuckOnce.is_stuck.is_set():
            StuckOnce.is_stuck.set()
            StuckOnce.release.wait(PATIENCE)
        return value


def test_a_slot_whose_user_code_does_not_return_is_replaced(start):
    cluster = MiniCluster(closing_seconds=0.2)
    StuckOnce.is_stuck.clear()
    StuckOnce.release.clear()
    job = start(collected(mapped(StuckOnce(), read(range(4)))), settings=RESTARTS, cluster=cluster)
    wait_until(StuckOnce.is_stuck.is_set)
    cluster.kill(0)
    wait_until(lambda: {2, 3} <= set(job.records()))
    StuckOnce.release.set()
    job.result()
