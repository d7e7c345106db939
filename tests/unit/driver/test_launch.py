"""How slots are given to Spark, as far as that shows without one."""

import threading
from types import SimpleNamespace

import pytest

from tidegate.core.errors import UnsuitableSpark
from tidegate.driver.launch import SlotThread, _check_session, settled


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
