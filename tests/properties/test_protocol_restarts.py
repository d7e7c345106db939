"""The restart strategies against a plain reading of Flink's documentation."""

from __future__ import annotations

import random
from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st

from tests.effort import examples
from tidegate.core.setting_groups import RestartSettings
from tidegate.protocol.restart_strategy import (
    ExponentialDelay,
    FailureRate,
    FixedDelay,
    GiveUp,
    Restart,
)

GAPS = st.lists(st.integers(0, 200).map(float), min_size=1, max_size=30)
DELAYS = st.integers(0, 20)


def times(gaps):
    now, found = 0.0, []
    for gap in gaps:
        now += gap
        found.append(now)
    return found


def ask(strategy, failures):
    """The strategy's answers, up to the one that ends the job."""
    answers = []
    for now in failures:
        answers.append(strategy.failed(now))
        if isinstance(answers[-1], GiveUp):
            break
    return answers


@given(gaps=GAPS, attempts=st.integers(0, 10), delay=DELAYS)
@examples(25)
def test_fixed_delay_tries_so_many_times_and_waits_between_attempts(gaps, attempts, delay):
    failures = times(gaps)
    answers = ask(FixedDelay(attempts, timedelta(seconds=delay)), failures)
    restarts = [answer for answer in answers if isinstance(answer, Restart)]
    assert restarts == [
        Restart(now + delay, number, attempts)
        for number, now in enumerate(failures[:attempts], start=1)
    ]
    assert len(answers) - len(restarts) == (len(failures) > attempts)


@given(gaps=GAPS, allowed=st.integers(1, 5), interval=st.integers(1, 500), delay=DELAYS)
@examples(40)
def test_failure_rate_ends_the_job_when_the_rate_is_exceeded(gaps, allowed, interval, delay):
    failures = times(gaps)
    strategy = FailureRate(allowed, timedelta(seconds=interval), timedelta(seconds=delay))
    for index, answer in enumerate(ask(strategy, failures)):
        now = failures[index]
        recent = [each for each in failures[: index + 1] if now - each <= interval]
        if len(recent) > allowed:
            assert isinstance(answer, GiveUp)
        else:
            assert answer == Restart(now + delay, len(recent), allowed, interval)


@given(
    gaps=GAPS,
    initial=st.integers(1, 5),
    longest=st.integers(5, 60),
    multiplier=st.sampled_from([1.2, 1.5, 2.0, 10.0]),
    quiet=st.integers(1, 150),
    attempts=st.integers(1, 8),
)
@examples(70)
def test_exponential_delay_grows_until_the_job_has_been_quiet_long_enough(
    gaps, initial, longest, multiplier, quiet, attempts
):
    configuration = RestartSettings(
        initial_backoff=timedelta(seconds=initial),
        max_backoff=timedelta(seconds=longest),
        backoff_multiplier=multiplier,
        reset_backoff_threshold=timedelta(seconds=quiet),
        jitter=0.0,
        exponential_attempts=attempts,
    )
    failures = times(gaps)
    in_a_row, running_since = 0, None
    for index, answer in enumerate(
        ask(ExponentialDelay(configuration, random.Random(0)), failures)
    ):
        now = failures[index]
        if running_since is not None and now <= running_since:
            # The restart that it waits for is still to come.
            assert answer == Restart(running_since, in_a_row, attempts)
            continue
        if running_since is not None and now - running_since >= quiet:
            in_a_row = 0
        in_a_row += 1
        if in_a_row > attempts:
            assert isinstance(answer, GiveUp)
            break
        expected = min(longest, initial * multiplier ** (in_a_row - 1))
        running_since = now + expected
        assert answer == Restart(running_since, in_a_row, attempts)


@given(seed=st.integers(0, 1000), jitter=st.floats(0, 1), failures=st.integers(1, 40))
@examples(25)
def test_jitter_moves_a_delay_by_at_most_its_share(seed, jitter, failures):
    configuration = RestartSettings(jitter=jitter)
    strategy = ExponentialDelay(configuration, random.Random(seed))
    now = 0.0
    for restarts in range(failures):
        answer = strategy.failed(now)
        delay = answer.at - now
        plain = min(1.5**restarts, 1e9)
        assert max(1.0, min(plain * (1 - jitter), 60.0)) - 1e-6 <= delay
        assert delay <= min(max(1.0, plain * (1 + jitter)), 60.0) + 1e-6
        now = answer.at + 1.0
