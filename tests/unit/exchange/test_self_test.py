"""The test of the streaming shuffle, without Spark."""

import threading
from types import SimpleNamespace

import pytest

from tidegate.exchange.pipelined import self_test


@pytest.fixture
def tried_out(monkeypatch):
    """What the test says if Spark gives these answers, one after the other."""
    monkeypatch.setattr(self_test, "InheritableThread", threading.Thread)
    monkeypatch.setattr(self_test, "_passed", set())

    def try_out(*answers):
        left = list(answers)

        def next_answer(spark, tasks):
            answer = left.pop(0)
            if isinstance(answer, Exception):
                raise answer
            return answer

        pumps = SimpleNamespace(tryOut=next_answer)
        context = SimpleNamespace(
            applicationId="app-1",
            setJobGroup=lambda *names: None,
            _jsc=SimpleNamespace(sc=lambda: None),
            _jvm=SimpleNamespace(
                tidegate=SimpleNamespace(exchange=SimpleNamespace(Pumps=pumps)),
            ),
        )
        return self_test.SelfTest(context).failure()

    return try_out


def test_an_executor_that_is_lost_meanwhile_says_nothing_about_the_shuffle(tried_out):
    assert tried_out(RuntimeError("ExecutorLostFailure"), 4) is None


def test_a_shuffle_that_fails_again_and_again_is_not_used(tried_out):
    broken = [RuntimeError(f"no class {number}") for number in range(3)]
    assert tried_out(*broken, 4) == "a test of the streaming shuffle failed: no class 2"


def test_frames_that_get_lost_are_no_reason_to_try_again(tried_out):
    assert tried_out(3, 4) == "a test of the streaming shuffle failed: 3 of 4 frames arrived"
