"""Restart strategies as values, for `StreamExecutionEnvironment.set_restart_strategy`."""

from __future__ import annotations

from dataclasses import dataclass

from tidegate.core.durations import DurationLike, as_milliseconds, as_timedelta
from tidegate.core.modes import RestartStrategyType


@dataclass(frozen=True, slots=True)
class RestartStrategyConfiguration:
    """A restart strategy and its settings."""

    strategy: RestartStrategyType | None
    """None: that of the configuration."""
    description: str
    settings: tuple[tuple[str, object], ...] = ()
    """The settings of the strategy by their key."""

    def get_description(self) -> str:
        """A description of the strategy."""
        return self.description


class RestartStrategies:
    """The available strategies, under PyFlink's names. Delays: timedelta or milliseconds."""

    @staticmethod
    def no_restart() -> RestartStrategyConfiguration:
        """Let the first failure end the job."""
        return RestartStrategyConfiguration(RestartStrategyType.NONE, "Restart deactivated.")

    @staticmethod
    def fall_back_restart() -> RestartStrategyConfiguration:
        """Restart as the configuration says."""
        return RestartStrategyConfiguration(None, "Cluster level default restart strategy")

    @staticmethod
    def fixed_delay_restart(
        restart_attempts: int, delay_between_attempts: DurationLike
    ) -> RestartStrategyConfiguration:
        """Restart a fixed number of times, each after the same delay."""
        delay = as_timedelta(delay_between_attempts)
        return RestartStrategyConfiguration(
            RestartStrategyType.FIXED_DELAY,
            f"Restart with fixed delay ({as_milliseconds(delay)} ms). "
            f"#{restart_attempts} restart attempts.",
            (
                ("restart-strategy.fixed-delay.attempts", restart_attempts),
                ("restart-strategy.fixed-delay.delay", delay),
            ),
        )

    @staticmethod
    def failure_rate_restart(
        failure_rate: int, failure_interval: DurationLike, delay_interval: DurationLike
    ) -> RestartStrategyConfiguration:
        """Restart until more failures occur within an interval than allowed."""
        interval, delay = as_timedelta(failure_interval), as_timedelta(delay_interval)
        return RestartStrategyConfiguration(
            RestartStrategyType.FAILURE_RATE,
            f"Failure rate restart with maximum of {failure_rate} failures within interval "
            f"{as_milliseconds(interval)} ms and fixed delay {as_milliseconds(delay)} ms.",
            (
                ("restart-strategy.failure-rate.max-failures-per-interval", failure_rate),
                ("restart-strategy.failure-rate.failure-rate-interval", interval),
                ("restart-strategy.failure-rate.delay", delay),
            ),
        )

    @staticmethod
    def exponential_delay_restart(
        initial_backoff: DurationLike,
        max_backoff: DurationLike,
        backoff_multiplier: float,
        reset_backoff_threshold: DurationLike,
        jitter_factor: float,
    ) -> RestartStrategyConfiguration:
        """Restart with delays that grow up to a limit."""
        prefix = "restart-strategy.exponential-delay"
        return RestartStrategyConfiguration(
            RestartStrategyType.EXPONENTIAL_DELAY,
            f"Restart with exponential delay: starting at {as_timedelta(initial_backoff)}, times "
            f"{backoff_multiplier} after a failure, up to {as_timedelta(max_backoff)}.",
            (
                (f"{prefix}.initial-backoff", as_timedelta(initial_backoff)),
                (f"{prefix}.max-backoff", as_timedelta(max_backoff)),
                (f"{prefix}.backoff-multiplier", backoff_multiplier),
                (f"{prefix}.reset-backoff-threshold", as_timedelta(reset_backoff_threshold)),
                (f"{prefix}.jitter-factor", jitter_factor),
            ),
        )
