"""Whether and when a failed job restarts, and which regions: Flink's four strategies.

A strategy is asked about every failure and counts failures for the whole job. Mistakes that no
restart can fix end the job without asking it. Times are readings of one clock, in seconds.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Protocol, assert_never

from tidegate.core.errors import (
    DatabaseFailed,
    DirectoryTaken,
    KafkaFailed,
    LocalStateFailed,
    TidegateError,
    UnwritableOutput,
    UserError,
    UserFunctionError,
)
from tidegate.core.ids import PipelineId
from tidegate.core.modes import FailoverStrategy, RestartStrategyType
from tidegate.core.setting_groups import UNLIMITED, RestartSettings
from tidegate.protocol.region import RegionState

_DEPLOYED = (
    RegionState.DEPLOYING,
    RegionState.RUNNING,
    RegionState.FAILING,
    RegionState.FINISHED,
)

_START_UP_MISTAKES = (
    UserError,
    DatabaseFailed,
    KafkaFailed,
    LocalStateFailed,
    UnwritableOutput,
)
"""Errors before the first record: in the program, its settings, or a system it connects to."""


@dataclass(frozen=True, slots=True)
class Restart:
    """Deploy again when the clock shows `at`."""

    at: float
    number: int
    """The number of this restart among those that count towards the limit."""
    limit: int | None = None
    """The job fails after more restarts than this."""
    within: float | None = None
    """Only restarts within this many seconds count; None: all of them."""

    def __str__(self) -> str:
        if self.limit is None:
            return f"restart {self.number} (no limit)"
        within = "" if self.within is None else f" within {self.within:g} s"
        return f"restart {self.number} of at most {self.limit}{within}"


@dataclass(frozen=True, slots=True)
class GiveUp:
    """The job has failed for good."""

    reason: str


def ends_the_job(cause: TidegateError, *, is_opening: bool, has_run: bool) -> bool:
    """Whether a failure is a mistake that no restart can fix, whatever the strategy.

    Args:
        cause: what failed.
        is_opening: it failed before the attempt could process anything: while subtasks opened, or
            while a source listed its splits.
        has_run: the pipeline has started once, in this attempt or an earlier one; systems and
            resources that were available then may come back.
    """
    if isinstance(cause, DirectoryTaken):
        return True
    if not is_opening:
        return False
    if has_run:
        return isinstance(cause, UserError) and not isinstance(cause, UserFunctionError)
    return isinstance(cause, _START_UP_MISTAKES)


class RestartStrategy(Protocol):
    """Decides what follows the failure of a region."""

    def failed(self, now: float) -> Restart | GiveUp: ...


def create_strategy(
    settings: RestartSettings, *, checkpointing: bool, randomness: random.Random
) -> RestartStrategy:
    """A strategy without failures so far; `randomness` supplies the jitter."""
    strategy = _type_of(settings, checkpointing=checkpointing)
    match strategy:
        case RestartStrategyType.NONE:
            return NoRestart()
        case RestartStrategyType.FIXED_DELAY:
            return FixedDelay(settings.fixed_delay_attempts, settings.fixed_delay)
        case RestartStrategyType.FAILURE_RATE:
            return FailureRate(
                settings.failure_rate_max,
                settings.failure_rate_interval,
                settings.failure_rate_delay,
            )
        case RestartStrategyType.EXPONENTIAL_DELAY:
            return ExponentialDelay(settings, randomness)
        case _:
            assert_never(strategy)


def restarts_allowed(settings: RestartSettings, *, checkpointing: bool) -> int:
    """How many failures in quick succession the job survives."""
    match _type_of(settings, checkpointing=checkpointing):
        case RestartStrategyType.NONE:
            return 0
        case RestartStrategyType.FIXED_DELAY:
            return settings.fixed_delay_attempts
        case RestartStrategyType.FAILURE_RATE:
            return settings.failure_rate_max
        case RestartStrategyType.EXPONENTIAL_DELAY:
            return settings.exponential_attempts


def _type_of(settings: RestartSettings, *, checkpointing: bool) -> RestartStrategyType:
    default = RestartStrategyType.EXPONENTIAL_DELAY if checkpointing else RestartStrategyType.NONE
    return settings.strategy or default


class NoRestart:
    """The first failure ends the job."""

    def failed(self, now: float) -> Restart | GiveUp:
        return GiveUp("the job has no restart strategy")


class FixedDelay:
    """A number of restarts over the life of the job, each after the same delay."""

    def __init__(self, attempts: int, delay: timedelta) -> None:
        self._attempts = attempts
        self._delay = delay.total_seconds()
        self._failures = 0

    def failed(self, now: float) -> Restart | GiveUp:
        self._failures += 1
        if self._failures > self._attempts:
            return GiveUp(f"fixed-delay allows no more than {self._attempts} restart(s)")
        return Restart(now + self._delay, self._failures, self._attempts)


class FailureRate:
    """Restarts unless an interval of this length has more failures than allowed."""

    def __init__(self, max_failures: int, interval: timedelta, delay: timedelta) -> None:
        self._max_failures = max_failures
        self._interval = interval.total_seconds()
        self._delay = delay.total_seconds()
        self._recent: deque[float] = deque(maxlen=max_failures + 1)

    def failed(self, now: float) -> Restart | GiveUp:
        self._recent.append(now)
        if len(self._recent) > self._max_failures and now - self._recent[0] <= self._interval:
            return GiveUp(f"more than {self._max_failures} failure(s) within {self._interval:g} s")
        number = sum(now - each <= self._interval for each in self._recent)
        return Restart(now + self._delay, number, self._max_failures, self._interval)


class ExponentialDelay:
    """Delays that grow with every restart until the job has run long enough without a failure."""

    def __init__(self, settings: RestartSettings, randomness: random.Random) -> None:
        self._initial = settings.initial_backoff.total_seconds()
        self._longest = settings.max_backoff.total_seconds()
        self._multiplier = settings.backoff_multiplier
        self._reset_after = settings.reset_backoff_threshold.total_seconds()
        self._jitter = settings.jitter
        self._attempts = settings.exponential_attempts
        self._randomness = randomness
        self._restarts = 0
        self._restart_at: float | None = None

    def failed(self, now: float) -> Restart | GiveUp:
        # A failure before the pending restart is part of the failure that caused it.
        if self._restart_at is None or now > self._restart_at:
            if self._restart_at is not None and now - self._restart_at >= self._reset_after:
                self._restarts = 0
            self._restart_at = now + self._backoff()
            self._restarts += 1
        if self._restarts > self._attempts:
            return GiveUp(f"exponential-delay allows no more than {self._attempts} restart(s)")
        limit = None if self._attempts == UNLIMITED else self._attempts
        return Restart(self._restart_at, self._restarts, limit)

    def _backoff(self) -> float:
        try:
            backoff = self._initial * self._multiplier**self._restarts
        except OverflowError:
            return self._longest
        offset = self._randomness.uniform(-1, 1) * self._jitter * backoff
        return max(self._initial, min(backoff + offset, self._longest))


def regions_to_reset(
    strategy: FailoverStrategy, failed: PipelineId, regions: Mapping[PipelineId, RegionState]
) -> frozenset[PipelineId]:
    """The regions that return to the last checkpoint, except those already waiting to do so.

    `full` includes finished regions: the checkpoint may precede their end, and it records which of
    their subtasks need not run again.
    """
    if strategy is FailoverStrategy.REGION:
        return frozenset({failed})
    return frozenset(pipeline for pipeline, state in regions.items() if state in _DEPLOYED)
