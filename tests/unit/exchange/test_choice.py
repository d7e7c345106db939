import threading
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from types import SimpleNamespace

import pytest

from tests.programs import PATIENCE, wait_until
from tidegate.exchange.choice import FallbackExchange
from tidegate.exchange.contract import NoRoom, StepBroken, StepCanceled


class Scripted:
    """An exchange that does what it is told, step by step."""

    def __init__(self, *script):
        self.script = list(script)
        self.steps = 0
        self.has_ended = False
        self.is_prompt = True

    def run_step(self, pipeline, request, slots, answer):
        self.steps += 1
        outcome = self.script.pop(0) if self.script else []
        if isinstance(outcome, StepBroken):
            raise outcome
        answer(outcome)

    def try_step(self, pipeline, request, slots, answer):
        if not self.is_prompt:
            return False
        self.steps += 1
        answer(self.script.pop(0) if self.script else [])
        return True

    def cancel_step(self, pipeline): ...

    def end_steps(self):
        self.has_ended = True


FIRST, SECOND = SimpleNamespace(id=0), SimpleNamespace(id=1)


def run(exchange, steps, pipelines=(FIRST,)):
    for step in range(steps):
        try:
            turn = pipelines[step % len(pipelines)]
            exchange.run_step(turn, None, {}, lambda outcome: None)
        except StepBroken:
            pass


def test_the_fast_exchange_is_left_when_it_breaks_twice_in_a_row(caplog):
    fast, steady = Scripted(StepBroken("one"), StepBroken("two")), Scripted()
    run(FallbackExchange(fast, steady), 5)
    assert (fast.steps, steady.steps) == (2, 3)
    assert "from now on, steps are Spark jobs" in caplog.text and "two" in caplog.text


def test_a_step_that_goes_through_makes_up_for_one_that_broke():
    fast, steady = Scripted(StepBroken("one"), [], StepBroken("two"), [], []), Scripted()
    run(FallbackExchange(fast, steady), 5)
    assert (fast.steps, steady.steps) == (5, 0)


def test_a_pipeline_whose_steps_go_through_does_not_make_up_for_another_one():
    fast, steady = Scripted(StepBroken("one"), [], StepBroken("two"), []), Scripted()
    run(FallbackExchange(fast, steady), 5, [FIRST, SECOND])
    assert (fast.steps, steady.steps) == (3, 2)


@pytest.mark.parametrize(("seconds_apart", "steady_steps"), [(29, 3), (40, 0)])
def test_the_fast_exchange_is_left_when_it_breaks_often(seconds_apart, steady_steps):
    breaks = [outcome for number in range(10) for outcome in (StepBroken(str(number)), [])]
    fast, steady, times = Scripted(*breaks), Scripted(), count(0, seconds_apart)
    run(FallbackExchange(fast, steady, now=lambda: next(times)), 22)
    assert steady.steps == steady_steps


def test_the_fast_exchange_is_left_at_once_when_it_finds_no_room():
    fast, steady = Scripted(NoRoom("no pumps")), Scripted()
    run(FallbackExchange(fast, steady), 3)
    assert (fast.steps, steady.steps) == (1, 2)


def test_an_exchange_that_is_left_holds_nothing():
    fast = Scripted(NoRoom("no pumps"))
    run(FallbackExchange(fast, Scripted()), 1)
    wait_until(lambda: fast.has_ended)


def test_a_canceled_step_says_nothing_about_the_exchange():
    fast, steady = Scripted(*[StepCanceled("enough")] * 5), Scripted()
    run(FallbackExchange(fast, steady), 5)
    assert (fast.steps, steady.steps) == (5, 0)


def test_a_broken_step_is_reported_to_its_requester():
    with pytest.raises(StepBroken, match="one"):
        FallbackExchange(Scripted(StepBroken("one")), Scripted()).run_step(FIRST, None, {}, print)


def test_steps_that_break_count_however_they_were_started():
    fast, steady = Scripted(StepBroken("one"), StepBroken("two")), Scripted()
    exchange = FallbackExchange(fast, steady)
    for _ in range(3):
        assert exchange.try_step(FIRST, None, {}, lambda outcome: None)
    assert (fast.steps, steady.steps) == (2, 1)


def test_no_step_is_tried_before_the_fast_exchange_is_tested():
    is_over = threading.Event()

    def test():
        assert is_over.wait(PATIENCE)

    fast = Scripted()
    exchange = FallbackExchange(fast, Scripted(), test)
    assert not exchange.try_step(FIRST, None, {}, print)
    assert fast.steps == 0
    is_over.set()
    wait_until(lambda: exchange.try_step(FIRST, None, {}, lambda outcome: None))


def test_both_exchanges_are_released_in_the_end():
    fast, steady = Scripted(), Scripted()
    FallbackExchange(fast, steady).end_steps()
    assert fast.has_ended and steady.has_ended


def test_a_fast_exchange_that_fails_its_test_is_not_used(caplog):
    caplog.set_level("INFO", "tidegate.spark")
    fast, steady = Scripted(), Scripted()
    run(FallbackExchange(fast, steady, lambda: "nothing arrived"), 3)
    assert (fast.steps, steady.steps) == (0, 3)
    assert caplog.messages == ["steps are Spark jobs, not pipelined: nothing arrived"]


@pytest.fixture
def endless_test():
    end = threading.Event()
    yield lambda: end.wait(20)
    end.set()


def test_a_canceled_step_does_not_wait_for_the_test(endless_test):
    fast, steady = Scripted(), Scripted()
    exchange = FallbackExchange(fast, steady, endless_test)
    with ThreadPoolExecutor() as threads:
        first, second = (
            threads.submit(exchange.run_step, pipeline, None, {}, print)
            for pipeline in (FIRST, SECOND)
        )
        wait_until(lambda: exchange.cancel_step(FIRST) or first.done())
        assert not second.done()
        again = threads.submit(exchange.run_step, FIRST, None, {}, print)
        wait_until(lambda: exchange.end_steps() or (again.done() and second.done()))
    for step in (first, second, again):
        assert isinstance(step.exception(), StepCanceled)
    assert (fast.steps, steady.steps) == (0, 0)


def test_no_step_runs_after_the_end(endless_test):
    fast, steady = Scripted(), Scripted()
    exchange = FallbackExchange(fast, steady, endless_test)
    exchange.end_steps()
    with pytest.raises(StepCanceled):
        exchange.run_step(FIRST, None, {}, print)
    assert (fast.steps, steady.steps) == (0, 0)
