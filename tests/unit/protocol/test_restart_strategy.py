import random
from datetime import timedelta

import pytest

from tidegate.core.errors import (
    DirectoryTaken,
    KafkaFailed,
    LeaseEnded,
    SlotLost,
    StorageError,
    UnreadableInput,
    UnwritableOutput,
    UserFunctionError,
)
from tidegate.core.modes import RestartStrategyType
from tidegate.core.setting_groups import RestartSettings
from tidegate.protocol.restart_strategy import (
    ExponentialDelay,
    FailureRate,
    FixedDelay,
    GiveUp,
    NoRestart,
    Restart,
    create_strategy,
    ends_the_job,
)


def seconds(value):
    return timedelta(seconds=value)


def exponential(**settings):
    return ExponentialDelay(RestartSettings(**{"jitter": 0.0, **settings}), random.Random(0))


@pytest.mark.parametrize(
    ("chosen", "checkpointing", "strategy"),
    [
        (None, False, NoRestart),
        (None, True, ExponentialDelay),
        (RestartStrategyType.NONE, True, NoRestart),
        (RestartStrategyType.FIXED_DELAY, False, FixedDelay),
        (RestartStrategyType.FAILURE_RATE, False, FailureRate),
        (RestartStrategyType.EXPONENTIAL_DELAY, False, ExponentialDelay),
    ],
)
def test_the_default_depends_on_checkpointing_as_in_flink(chosen, checkpointing, strategy):
    settings = RestartSettings(strategy=chosen)
    created = create_strategy(settings, checkpointing=checkpointing, randomness=random.Random(0))
    assert type(created) is strategy


def test_without_a_strategy_the_first_failure_is_the_last():
    assert NoRestart().failed(0.0) == GiveUp("the job has no restart strategy")


def test_fixed_delay_restarts_so_many_times_in_the_life_of_the_job():
    strategy = FixedDelay(3, seconds(10))
    assert [strategy.failed(now) for now in (0.0, 5.0, 1e6)] == [
        Restart(10.0, 1, 3),
        Restart(15.0, 2, 3),
        Restart(1e6 + 10, 3, 3),
    ]
    assert strategy.failed(2e6) == GiveUp("fixed-delay allows no more than 3 restart(s)")


def test_failure_rate_gives_up_at_one_failure_too_many_within_the_interval():
    strategy = FailureRate(2, seconds(60), seconds(1))
    assert strategy.failed(0.0) == Restart(1.0, 1, 2, 60.0)
    assert strategy.failed(30.0) == Restart(31.0, 2, 2, 60.0)
    assert strategy.failed(60.0) == GiveUp("more than 2 failure(s) within 60 s")


def test_failures_before_the_interval_do_not_count():
    strategy = FailureRate(2, seconds(60), seconds(1))
    for now in (0.0, 30.0, 60.5, 91.0, 121.0):
        assert strategy.failed(now).at == now + 1


def test_delays_grow_until_the_longest():
    strategy = exponential(backoff_multiplier=2.0, max_backoff=seconds(5))
    delays = []
    now = 0.0
    for _ in range(5):
        restart = strategy.failed(now)
        delays.append(restart.at - now)
        now = restart.at + 1
    assert delays == [1.0, 2.0, 4.0, 5.0, 5.0]


def test_failures_before_the_restart_they_wait_for_are_one():
    strategy = exponential(exponential_attempts=1)
    for now in (0.0, 0.5, 1.0):
        assert strategy.failed(now) == Restart(1.0, 1, 1)
    assert isinstance(strategy.failed(1.5), GiveUp)


def test_delays_start_over_after_long_enough_without_a_failure():
    strategy = exponential(reset_backoff_threshold=seconds(100), exponential_attempts=2)
    assert strategy.failed(0.0) == Restart(1.0, 1, 2)
    assert strategy.failed(50.0) == Restart(51.5, 2, 2)
    assert strategy.failed(151.5) == Restart(152.5, 1, 2)


def test_jitter_stays_within_its_share_and_within_the_bounds():
    settings = RestartSettings(jitter=0.5, backoff_multiplier=2.0, max_backoff=seconds(10))
    strategy = ExponentialDelay(settings, random.Random(3))
    now, delays = 0.0, []
    for _ in range(200):
        restart = strategy.failed(now)
        delays.append(restart.at - now)
        now = restart.at + 1
    assert min(delays) >= 1.0
    assert max(delays) <= 10.000001
    assert 1.0 <= delays[0] <= 1.5
    assert 1.0 <= delays[1] <= 3.0
    assert len({round(delay, 6) for delay in delays}) > 3


def test_very_many_restarts_do_not_overflow():
    strategy = exponential(backoff_multiplier=100.0, reset_backoff_threshold=timedelta(days=99))
    now = 0.0
    for _ in range(1000):
        restart = strategy.failed(now)
        now = restart.at + 1
    assert restart == Restart(now - 1, 1000, None)


@pytest.mark.parametrize(
    ("restart", "text"),
    [
        (Restart(0.0, 4), "restart 4 (no limit)"),
        (Restart(0.0, 2, 3), "restart 2 of at most 3"),
        (Restart(0.0, 2, 3, 60.0), "restart 2 of at most 3 within 60 s"),
    ],
)
def test_a_restart_says_its_number_and_the_limit(restart, text):
    assert str(restart) == text


FUNCTION = UserFunctionError("Map", None, "(1/1)", None, "KeyError: 'x'\n")
MISSING = UnreadableInput("/data", "there is no such file", "correct the path")
BROKER = KafkaFailed("broker:9092", "listing partitions", "no route")


@pytest.mark.parametrize(
    "cause", [FUNCTION, MISSING, BROKER, UnwritableOutput("/out", "read-only", "mount it")]
)
def test_a_mistake_before_the_first_record_ends_the_job(cause):
    assert ends_the_job(cause, is_opening=True, has_run=False)
    assert not ends_the_job(cause, is_opening=False, has_run=False)


@pytest.mark.parametrize("cause", [SlotLost(0, "killed"), LeaseEnded(), StorageError("/", "", "")])
def test_what_may_pass_is_left_to_the_restart_strategy(cause):
    assert not ends_the_job(cause, is_opening=True, has_run=False)


@pytest.mark.parametrize(("cause", "ends"), [(MISSING, True), (FUNCTION, False), (BROKER, False)])
def test_a_job_that_has_run_waits_for_its_surroundings_to_come_back(cause, ends):
    assert ends_the_job(cause, is_opening=True, has_run=True) is ends


@pytest.mark.parametrize("is_opening", [True, False])
def test_a_directory_taken_by_another_driver_always_ends_the_job(is_opening):
    assert ends_the_job(DirectoryTaken("chk", 1), is_opening=is_opening, has_run=True)
