"""The settings of a job, under Flink's names."""

from __future__ import annotations

from typing import Annotated

from tidegate.core.config import GROUPS, Settings
from tidegate.core.durations import format_duration
from tidegate.core.modes import RestartStrategyType
from tidegate.core.options import options_of
from tidegate.core.redaction import HIDDEN, is_secret, redacted
from tidegate.driver.job_handle import JobHandle
from tidegate.web.forms import Form, Id

_PARAMETERS = "pipeline.global-job-parameters"
"""They are listed one by one."""


class ExecutionDocument(Form):
    """How a job runs."""

    execution_mode: str = "PIPELINED"
    restart_strategy: str
    job_parallelism: int
    object_reuse_mode: bool
    user_config: Annotated[dict[str, str], "What differs from the defaults; secrets are hidden."]


class JobConfig(Form):
    """The settings of a job."""

    jid: Id
    name: str
    execution_config: ExecutionDocument


def job_config(job: JobHandle) -> JobConfig:
    settings = job.settings
    return JobConfig(
        jid=job.job_id,
        name=job.name,
        execution_config=ExecutionDocument(
            restart_strategy=_restart_strategy(settings),
            job_parallelism=job.graph.slots,
            object_reuse_mode=settings.pipeline.object_reuse,
            user_config=user_config(settings),
        ),
    )


def user_config(settings: Settings) -> dict[str, str]:
    """Settings that differ from the defaults, and job parameters; secrets are hidden."""
    found = {**settings.spark_conf, **settings.pipeline.job_parameters}
    for group in (getattr(settings, name) for name in GROUPS):
        for attribute, option in options_of(group).items():
            value = getattr(group, attribute)
            if value != option.default and option.key != _PARAMETERS:
                found[option.key] = option.format(value)
    return {key: HIDDEN if is_secret(key) else redacted(found[key]) for key in sorted(found)}


def _restart_strategy(settings: Settings) -> str:
    restart = settings.restart
    chosen = restart.strategy
    if chosen is None:
        chosen = (
            RestartStrategyType.EXPONENTIAL_DELAY
            if settings.checkpointing.is_enabled
            else RestartStrategyType.NONE
        )
    match chosen:
        case RestartStrategyType.FIXED_DELAY:
            delay = format_duration(restart.fixed_delay)
            return f"fixed-delay: {restart.fixed_delay_attempts} restarts, {delay} apart"
        case RestartStrategyType.FAILURE_RATE:
            interval = format_duration(restart.failure_rate_interval)
            return f"failure-rate: {restart.failure_rate_max} failures in {interval}"
        case RestartStrategyType.EXPONENTIAL_DELAY:
            first, last = restart.initial_backoff, restart.max_backoff
            return f"exponential-delay: {format_duration(first)} to {format_duration(last)}"
        case _:
            return "none"
