import logging

import pytest

from tidegate.core.errors import SlotLost, UserFunctionError
from tidegate.core.modes import RestartStrategyType
from tidegate.core.poison import PoisonOrders, PoisonRecord
from tidegate.core.setting_groups import RestartSettings
from tidegate.driver.poison_counts import PoisonCounts, warn_of_too_few_restarts

ONE = PoisonRecord("map", "1")
OTHER = PoisonRecord("map", "2")


def failure(record):
    error = UserFunctionError("Map", None, "(1/1)", "'x'", "ValueError\n")
    error.poison = record
    return error


def test_a_record_is_skipped_after_the_given_number_of_failed_attempts():
    counts = PoisonCounts(2)
    counts.failed(1, failure(ONE))
    counts.failed(2, failure(OTHER))
    assert counts.orders() == PoisonOrders()
    counts.failed(3, failure(ONE))
    assert counts.orders() == PoisonOrders(frozenset({ONE}))
    counts.failed(4, failure(OTHER))
    assert counts.orders() == PoisonOrders(frozenset({ONE, OTHER}))


def test_an_attempt_fails_on_a_record_once():
    counts = PoisonCounts(2)
    for _ in range(5):
        counts.failed(1, failure(ONE))
    assert counts.orders() == PoisonOrders()


def test_other_failures_do_not_count():
    counts = PoisonCounts(1)
    counts.failed(1, failure(None))
    counts.failed(2, SlotLost(0, "killed"))
    assert counts.orders() == PoisonOrders()


def test_without_a_choice_nobody_watches():
    counts = PoisonCounts(None)
    counts.failed(1, failure(ONE))
    assert counts.orders() is None


def test_at_once_needs_no_failure():
    assert PoisonCounts(0).orders() == PoisonOrders(skips_at_once=True)


def test_an_operator_gets_its_own_orders():
    orders = PoisonOrders(frozenset({ONE, PoisonRecord("sink", "1")}))
    assert orders.of("map") == PoisonOrders(frozenset({ONE}))
    assert not orders.of("source").may_skip


@pytest.mark.parametrize(
    ("settings", "checkpointing", "is_warned"),
    [
        ({"strategy": RestartStrategyType.NONE}, True, True),
        ({}, False, True),
        ({}, True, False),
        ({"strategy": RestartStrategyType.FIXED_DELAY, "fixed_delay_attempts": 2}, True, True),
        ({"strategy": RestartStrategyType.FIXED_DELAY, "fixed_delay_attempts": 3}, True, False),
        ({"strategy": RestartStrategyType.FAILURE_RATE, "failure_rate_max": 2}, True, True),
        ({"exponential_attempts": 2}, True, True),
    ],
)
def test_a_strategy_that_gives_up_too_soon_is_warned_of(caplog, settings, checkpointing, is_warned):
    caplog.set_level(logging.WARNING)
    chosen = RestartSettings(poison_skip_after=3, **settings)
    warn_of_too_few_restarts(chosen, checkpointing=checkpointing)
    assert bool(caplog.messages) is is_warned


def on_record(shown):
    return UserFunctionError("Map", None, "(1/1)", shown, "KeyError: 'x'\n")


def test_a_record_that_fails_again_is_named_a_case_for_skipping():
    counts = PoisonCounts(None)
    counts.failed(1, on_record("1"))
    counts.failed(1, on_record("1"))
    assert counts.hint(on_record("1")) == "", "told twice of one attempt"
    counts.failed(2, on_record("2"))
    assert counts.hint(on_record("2")) == ""
    counts.failed(3, on_record("1"))
    assert counts.hint(on_record("1")) == (
        "\nThe job has failed on this record 2 times. Correct the code, or skip such records: "
        "env.on_poison_record(), see docs/poison-records.md."
    )


def test_failures_without_a_record_get_no_hint():
    counts = PoisonCounts(None)
    for attempt in (1, 2, 3):
        counts.failed(attempt, on_record(None))
    assert counts.hint(on_record(None)) == counts.hint(SlotLost(0, "killed")) == ""


def test_a_job_that_skips_such_records_needs_no_hint():
    counts = PoisonCounts(5)
    for attempt in (1, 2, 3):
        counts.failed(attempt, on_record("1"))
    assert counts.hint(on_record("1")) == ""


def test_very_many_records_that_fail_are_not_all_remembered():
    counts = PoisonCounts(None)
    for attempt in range(1000):
        counts.failed(attempt, on_record(str(attempt)))
    assert len(counts._attempts) == 100
