"""The operator by hand: what it sends, emits, stores and sends again."""

import asyncio
import threading

import numpy as np
import pytest

from tests.programs import wait_until
from tidegate.core.errors import UserFunctionError
from tidegate.core.poison import PoisonOrders
from tidegate.operators.async_io import event_loop
from tidegate.operators.async_io.contracts import AsyncFunction
from tidegate.operators.async_io.operator import AsyncWaitOperator
from tidegate.operators.async_io.retries import (
    NO_RETRY_STRATEGY,
    ExponentialBackoffDelayRetryStrategy,
    FixedDelayRetryStrategy,
    empty_result_predicate,
    has_exception_predicate,
)
from tidegate.operators.poison import DEAD_LETTERS
from tidegate.stream.batch import NO_TIMESTAMP, Batch
from tidegate.stream.elements import Watermark, WatermarkStatus
from tidegate.testing.harness import OperatorHarness

sent = []
"""What every function of a test has sent, in this process."""
gates = {}


def note(what):
    """Classes inside of tests are copied with the globals that they use, but not with this."""
    sent.append(what)


@pytest.fixture(autouse=True)
def fresh():
    sent.clear()
    gates.clear()


class Gated(AsyncFunction):
    """Answers a record once the test opens its gate."""

    async def async_invoke(self, value):
        sent.append(value)
        while not gates.get(value) and not gates.get("all"):
            await asyncio.sleep(0.001)
        return [value * 10]


def operator(function, strategy=NO_RETRY_STRATEGY, *, order="ordered", timeout=None, capacity=10):
    return AsyncWaitOperator(
        function, strategy, order=order, timeout_seconds=timeout, capacity=capacity
    )


def drained(harness):
    harness.operator.drain()
    return harness.take_output()


def test_no_more_requests_are_under_way_than_the_capacity_allows():
    with OperatorHarness(operator(Gated(), capacity=3)) as harness:
        harness.process(range(10))
        wait_until(lambda: len(sent) == 3)
        gates[0] = True
        wait_until(lambda: len(sent) == 4)
        assert sent == [0, 1, 2, 3]
        gates["all"] = True
        assert drained(harness) == [n * 10 for n in range(10)]


def test_the_next_request_starts_while_nobody_takes_results():
    with OperatorHarness(operator(Gated(), capacity=1)) as harness:
        gates["all"] = True
        harness.process(range(5))
        wait_until(lambda: len(sent) == 5)


def test_a_result_makes_a_step_due():
    with OperatorHarness(operator(Gated())) as harness:
        harness.process([1])
        assert harness.operator.next_timer() is None
        assert harness.wakes == 0
        gates[1] = True
        wait_until(lambda: harness.wakes == 1)
        assert harness.operator.next_timer() is not None
        harness.advance(0)
        assert harness.output == [10]
        assert harness.operator.next_timer() is None


def test_unordered_results_leave_as_they_come():
    with OperatorHarness(operator(Gated(), order="unordered")) as harness:
        harness.process([1, 2])
        gates[2] = True
        wait_until(lambda: _ready(harness))
        harness.flush()
        assert harness.take_output() == [20]
        gates[1] = True
        assert drained(harness) == [10]


def _ready(harness):
    return harness.operator.next_timer() is not None


def test_a_watermark_waits_for_the_results_before_it():
    with OperatorHarness(operator(Gated(), order="unordered")) as harness:
        harness.watermark(5)
        harness.process([1])
        harness.watermark(7)
        harness.process([2])
        gates[2] = True
        wait_until(lambda: len(sent) == 2)
        harness.flush()
        assert harness.watermarks == [Watermark(5)]
        gates[1] = True
        assert drained(harness) == [10, 20]
        assert harness.watermarks == [Watermark(5), Watermark(7)]


def test_a_stream_becomes_idle_after_its_last_result():
    with OperatorHarness(operator(Gated(), order="unordered")) as harness:
        harness.process([1])
        harness.operator.on_watermark_status(WatermarkStatus.IDLE)
        assert harness.statuses == []
        gates[1] = True
        assert drained(harness) == [10]
        assert harness.statuses == [WatermarkStatus.IDLE]


def test_results_have_the_timestamp_of_their_record():
    class Twice(AsyncFunction):
        async def async_invoke(self, value):
            return [value, value]

    with OperatorHarness(operator(Twice())) as harness:
        harness.process_batch(Batch(records=[1, 2], timestamps=np.array([100, 200])))
        harness.operator.drain()
        assert [int(t) for b in harness.batches for t in b.timestamps] == [100, 100, 200, 200]


def test_results_keep_their_timestamps_beside_results_without():
    with OperatorHarness(operator(Gated(), capacity=1)) as harness:
        harness.process_batch(Batch(records=[1], timestamps=np.array([100])))
        harness.process_batch(Batch(records=[2, 3]))
        gates["all"] = True
        wait_until(lambda: sent == [1, 2, 3])  # so the others have their results
        harness.operator.drain()
        assert harness.batches[0].timestamps.tolist()[:2] == [100, NO_TIMESTAMP]


def test_requests_in_flight_are_part_of_the_snapshot_and_sent_again():
    with OperatorHarness(operator(Gated())) as harness:
        harness.process([1, 2])
        harness.watermark(9)
        harness.process([3])
        gates[1] = True
        wait_until(lambda: _ready(harness))
        snapshot = harness.snapshot()
        assert harness.output == [10]
    sent.clear()
    with harness.restore(snapshot) as restored:
        gates["all"] = True
        assert drained(restored) == [20, 30]
        assert sent == [2, 3]
        assert restored.watermarks == [Watermark(9)]


def test_requests_in_flight_are_shared_out_when_the_parallelism_changes():
    with OperatorHarness(operator(Gated())) as harness:
        harness.process(range(5))
        harness.watermark(9)
        snapshot = harness.snapshot()
    gates["all"] = True
    results = []
    for subtask in range(2):
        with harness.restore(snapshot, parallelism=2, subtask=subtask) as restored:
            results += drained(restored)
            assert restored.watermarks == []
    assert sorted(results) == [0, 10, 20, 30, 40]


def test_a_function_that_changes_its_record_does_not_change_what_is_sent_again():
    class Changing(AsyncFunction):
        async def async_invoke(self, value):
            note(list(value))
            value.append("changed")
            await asyncio.Event().wait()

    with OperatorHarness(operator(Changing())) as harness:
        harness.process([["record"]])
        wait_until(lambda: len(sent) == 1)
        snapshot = harness.snapshot()
    with harness.restore(snapshot):
        wait_until(lambda: len(sent) == 2)
    assert sent == [["record"], ["record"]]


def test_a_request_that_times_out_has_the_results_of_timeout():
    class Late(AsyncFunction):
        async def async_invoke(self, value):
            await asyncio.Event().wait()

        def timeout(self, value):
            return [f"{value} is late"]

    with OperatorHarness(operator(Late(), timeout=0.001)) as harness:
        harness.process(["a"])
        assert drained(harness) == ["a is late"]


def test_a_timeout_of_the_users_own_is_an_exception_like_any_other():
    class Raises(AsyncFunction):
        async def async_invoke(self, value):
            raise TimeoutError("mine")

        def timeout(self, value):
            return ["replaced"]

    with OperatorHarness(operator(Raises(), timeout=60)) as harness:
        harness.process([1])
        with pytest.raises(UserFunctionError, match="mine"):
            harness.operator.drain()


def test_without_a_timeout_method_a_request_that_times_out_fails_on_its_record():
    class Late(AsyncFunction):
        async def async_invoke(self, value):
            await asyncio.Event().wait()

    with OperatorHarness(operator(Late(), timeout=0.001)) as harness:
        harness.process(["a record"])
        with pytest.raises(UserFunctionError, match="timed out for the record 'a record'"):
            harness.operator.drain()


class FailsAt(AsyncFunction):
    def __init__(self, *bad):
        self.bad = bad

    async def async_invoke(self, value):
        if value in self.bad:
            raise ValueError(f"bad {value}")
        return [value]


def test_the_results_before_a_failure_are_emitted_and_the_failure_names_its_record():
    with OperatorHarness(operator(FailsAt(3))) as harness:
        harness.process([1, 2, 3, 4])
        with pytest.raises(UserFunctionError, match="bad 3") as failure:
            harness.operator.drain()
        assert harness.output == [1, 2]
        assert "3" in failure.value.args[3]
        assert failure.value.args[4].count("File") == 1, "the traceback is the user's alone"


def test_a_poison_record_is_skipped_if_ordered():
    skipping = PoisonOrders(skips_at_once=True)
    with OperatorHarness(operator(FailsAt(3)), poison=skipping) as harness:
        harness.process([1, 2, 3, 4])
        assert drained(harness) == [1, 2, 4]
        (letter,) = harness.side_output(DEAD_LETTERS)
        assert letter["record"] == "3"


def test_a_cancelled_coroutine_is_a_failure_and_not_a_request_that_never_ends():
    class Cancelled(AsyncFunction):
        async def async_invoke(self, value):
            raise asyncio.CancelledError

    with OperatorHarness(operator(Cancelled())) as harness:
        harness.process([1])
        with pytest.raises(UserFunctionError, match="CancelledError"):
            harness.operator.drain()


@pytest.mark.parametrize("found", ["text", {"a": 1}, 5])
def test_what_is_no_list_of_results_is_refused(found):
    class Returns(AsyncFunction):
        async def async_invoke(self, value):
            return found

    with OperatorHarness(operator(Returns())) as harness:
        harness.process([1])
        with pytest.raises(UserFunctionError, match=r"return \[result\]"):
            harness.operator.drain()


class Attempts(AsyncFunction):
    """Fails, then returns nothing, then a result."""

    def open(self, runtime_context):
        self.attempts = 0

    async def async_invoke(self, value):
        self.attempts += 1
        if self.attempts == 1:
            raise ConnectionError("refused")
        return [] if self.attempts == 2 else [self.attempts]


def test_a_request_is_repeated_while_its_predicates_ask_for_it():
    strategy = FixedDelayRetryStrategy(3, 1, empty_result_predicate, has_exception_predicate)
    with OperatorHarness(operator(Attempts(), strategy, timeout=60)) as harness:
        harness.process([1])
        assert drained(harness) == [3]


def test_the_last_attempt_counts_whatever_it_brings():
    strategy = FixedDelayRetryStrategy(1, 1, empty_result_predicate, has_exception_predicate)
    with OperatorHarness(operator(Attempts(), strategy, timeout=60)) as harness:
        harness.process([1])
        assert drained(harness) == []
    strategy = FixedDelayRetryStrategy(2, 1, None, None)
    with OperatorHarness(operator(Attempts(), strategy, timeout=60)) as harness:
        harness.process([1])
        with pytest.raises(UserFunctionError, match="refused"):
            harness.operator.drain()


def test_pauses_grow_up_to_the_longest():
    strategy = ExponentialBackoffDelayRetryStrategy(5, 100, 300, 2.0, None, None)
    assert [strategy.get_backoff_time_millis(n) for n in (1, 2, 3, 4)] == [100, 200, 300, 300]
    assert [strategy.can_retry(n) for n in (5, 6)] == [True, False]


def test_open_and_close_run_on_the_event_loop_and_may_be_coroutines():
    class Session(AsyncFunction):
        async def open(self, runtime_context):
            self.loop = asyncio.get_running_loop()

        async def async_invoke(self, value):
            return [self.loop is asyncio.get_running_loop()]

        async def close(self):
            note(self.loop is asyncio.get_running_loop())

    with OperatorHarness(operator(Session())) as harness:
        harness.process([1])
        assert drained(harness) == [True]
    assert sent == [True]


def test_requests_under_way_are_cancelled_before_close():
    class Endless(AsyncFunction):
        async def async_invoke(self, value):
            note("begun")
            try:
                await asyncio.Event().wait()
            finally:
                note("cancelled")

        def close(self):
            note("closed")

    with OperatorHarness(operator(Endless())) as harness:
        harness.process([1])
        wait_until(lambda: sent == ["begun"])
    assert sent == ["begun", "cancelled", "closed"]


class Blocking(AsyncFunction):
    async def async_invoke(self, value):
        note(value)
        stuck.wait()
        return []


stuck = threading.Event()


def test_a_function_that_blocks_the_event_loop_does_not_hold_up_the_end(monkeypatch):
    monkeypatch.setattr(event_loop, "_CLOSE_SECONDS", 0.1)
    harness = OperatorHarness(operator(Blocking()), copy=False)
    harness.process([1])
    wait_until(lambda: sent == [1])
    try:
        harness.close()
        assert "its event loop is blocked" in harness.console[-1]
    finally:
        stuck.set()


def test_there_is_no_room_while_too_many_results_are_owed():
    with OperatorHarness(operator(Gated(), capacity=2)) as harness:
        assert harness.operator.room() == 16
        harness.process(range(20))
        assert harness.operator.room() == 0
        gates["all"] = True
        drained(harness)
        assert harness.operator.room() >= 16
