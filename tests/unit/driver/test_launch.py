"""How slots are given to Spark, as far as that shows without one."""

import queue
import threading
from contextlib import contextmanager
from types import SimpleNamespace

import pytest

from tests.programs import PATIENCE
from tidegate.core.config import Settings
from tidegate.core.errors import UnsuitableSpark
from tidegate.driver import launch
from tidegate.driver.cluster import SlotJobEnded
from tidegate.driver.launch import SlotThread, SparkCluster, _check_session, settled


@pytest.fixture
def ended():
    reasons = []
    over = threading.Event()

    def end(reason):
        reasons.append(reason)
        over.set()

    end.reasons, end.over = reasons, over
    return end


def test_the_end_of_a_slot_thread_is_reported_with_its_reason(ended):
    def fail():
        raise ValueError("no file left")

    SlotThread("slot", fail, ended).start()
    assert ended.over.wait(120)
    assert ended.reasons == ["no file left"]


def test_a_slot_thread_that_cannot_begin_is_reported(ended):
    """As where PySpark finds no socket for the properties of the thread."""
    thread = SlotThread("slot", lambda: None, ended)
    thread._target = lambda: 1 / 0
    thread.start()
    assert ended.over.wait(120)
    assert ended.reasons == ["division by zero"]


def test_a_slot_thread_that_cannot_be_started_is_reported(ended, monkeypatch):
    def refuse(thread):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    SlotThread("slot", lambda: None, ended).start()
    assert ended.reasons == ["can't start new thread"]


class DeafSpark:
    """Runs no jobs, and does not answer when it is asked to cancel one."""

    master = "local[4]"
    _jsc = None

    def __init__(self):
        self.groups = queue.SimpleQueue()
        self.canceled = queue.SimpleQueue()
        self.answers = threading.Event()

    def setJobGroup(self, group, description, interruptOnCancel):  # noqa: N803
        self.groups.put(group)
        raise ValueError("it runs no jobs")

    def cancelJobGroup(self, group):
        self.canceled.put(group)
        self.answers.wait(PATIENCE)


@contextmanager
def cluster_of(spark):
    cluster = SparkCluster(spark, "a-job", 1, 0, b"secret", Settings())
    try:
        yield cluster
    finally:
        cluster.close()


def test_killing_a_slot_waits_for_nobody_and_concerns_no_later_launch():
    """The caller is the job master: the other slots would lose their leases."""
    spark = DeafSpark()
    with cluster_of(spark) as cluster:
        cluster.kill(0)
        cluster.launch(0, 1)
        first = spark.groups.get(timeout=PATIENCE)
        killing = threading.Thread(target=cluster.kill, args=(0,), daemon=True)
        killing.start()
        killing.join(PATIENCE / 4)
        assert not killing.is_alive()
        cluster.launch(0, 2)
        assert spark.groups.get(timeout=PATIENCE) != first
        assert spark.canceled.get(timeout=PATIENCE) == first
        assert spark.canceled.empty()
        spark.answers.set()


def test_a_slot_whose_thread_starts_after_the_end_does_not_run(monkeypatch):
    """PySpark asks Spark before it starts a thread; the answer may come late."""
    held, ends = queue.SimpleQueue(), queue.SimpleQueue()

    def hold(thread):
        held.put(thread)

    spark = SimpleNamespace(
        master="local[4]",
        setJobGroup=lambda *arguments, **options: None,
        addJobTag=lambda tag: None,
        parallelize=lambda *arguments: pytest.fail("it runs"),
    )
    with monkeypatch.context() as late:
        late.setattr(SlotThread, "start", hold)
        with cluster_of(spark) as cluster:
            cluster.start(ends.put)
            cluster.launch(0, 1)
    held.get_nowait().start()
    assert ends.get(timeout=PATIENCE) == SlotJobEnded(0, "it returned")


@pytest.mark.parametrize("is_late", [False, True])
def test_an_ended_job_holds_no_task_slots(monkeypatch, is_late):
    """Spark may answer only after the end how many it has."""
    spark = SimpleNamespace(master="local[4]")
    cluster = SparkCluster(spark, "a-job", 2, 0, b"secret", Settings())

    def count(context):
        if is_late:
            cluster.close()
        return 4

    monkeypatch.setattr(launch, "task_slots", count)
    assert cluster.shortage() is None
    if not is_late:
        assert launch._tasks_of_others(spark) == 2
        cluster.close()
    assert launch._tasks_of_others(spark) == 0


@pytest.mark.parametrize("setting", ["spark.network.crypto.enabled", "spark.ssl.rpc.enabled"])
def test_a_session_that_encrypts_is_not_weakened(setting):
    context = SimpleNamespace(getConf=lambda: {setting: "true"}, master="spark://somewhere:7077")
    with pytest.raises(UnsuitableSpark, match=setting):
        _check_session(context, 1)


@pytest.mark.parametrize(
    ("counts", "found", "seconds"),
    [
        ({0: 8}, 8, 0),  # all are there
        ({0: 0, 5: 4, 7: 8}, 8, 7),
        ({0: 0, 5: 4}, 4, 8),  # no more come
        ({0: 0}, 0, 30),
    ],
)
def test_executors_that_register_are_waited_for(counts, found, seconds):
    now = [0.0]

    def count():
        return counts[max(begin for begin in counts if begin <= now[0])]

    def sleep(duration):
        now[0] += duration

    assert settled(count, 7, lambda: now[0], sleep) == found
    assert now[0] == pytest.approx(seconds, abs=0.3)
