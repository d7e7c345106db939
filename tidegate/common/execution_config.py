"""`ExecutionConfig`: settings of the whole job, under PyFlink's names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Self

from tidegate.common.restart_strategy import RestartStrategyConfiguration
from tidegate.core.durations import DurationLike, as_milliseconds

if TYPE_CHECKING:
    from tidegate.datastream.execution.environment_settings import EnvironmentSettings


class ExecutionConfig:
    """A view of the environment's settings: what is set here is set there."""

    PARALLELISM_DEFAULT = -1
    PARALLELISM_UNKNOWN = -2

    def __init__(self, environment: EnvironmentSettings) -> None:
        self._environment = environment

    def set_parallelism(self, parallelism: int) -> Self:
        """Set the default parallelism of operators."""
        self._environment.set_parallelism(parallelism)
        return self

    def get_parallelism(self) -> int:
        """The default parallelism of operators."""
        return self._environment.get_parallelism()

    def set_max_parallelism(self, max_parallelism: int) -> Self:
        """Set the number of key groups, the limit for rescaling."""
        self._environment.set_max_parallelism(max_parallelism)
        return self

    def get_max_parallelism(self) -> int:
        """The number of key groups."""
        return self._environment.get_max_parallelism()

    def set_restart_strategy(self, strategy: RestartStrategyConfiguration) -> Self:
        """Set what happens after a failure."""
        self._environment.set_restart_strategy(strategy)
        return self

    def get_restart_strategy(self) -> RestartStrategyConfiguration:
        """What happens after a failure."""
        return self._environment.get_restart_strategy()

    def set_global_job_parameters(self, global_job_parameters_dict: Mapping[str, Any]) -> Self:
        """Parameters of the program, read by `RuntimeContext.get_job_parameter`."""
        self._environment._configuration.set(
            "pipeline.global-job-parameters", global_job_parameters_dict
        )
        return self

    def get_global_job_parameters(self) -> dict[str, str]:
        """The parameters that all functions of the job can read."""
        return dict(self._environment._configuration.get("pipeline.global-job-parameters"))

    def set_auto_watermark_interval(self, interval: DurationLike) -> Self:
        """Set how often watermark generators emit; 0: only where they do so for a record."""
        self._environment._configuration.set("pipeline.auto-watermark-interval", interval)
        return self

    def get_auto_watermark_interval(self) -> int:
        """Milliseconds."""
        return as_milliseconds(
            self._environment._configuration.get("pipeline.auto-watermark-interval")
        )

    def set_task_cancellation_timeout(self, timeout: DurationLike) -> Self:
        """Set how long user code may take to end when it is cancelled."""
        self._environment._configuration.set("task.cancellation.timeout", timeout)
        return self

    def get_task_cancellation_timeout(self) -> int:
        """Milliseconds."""
        return as_milliseconds(self._environment._configuration.get("task.cancellation.timeout"))

    def enable_object_reuse(self) -> Self:
        """Share objects between functions: none may change what it was given or has emitted."""
        self._environment._configuration.set("pipeline.object-reuse", True)
        return self

    def disable_object_reuse(self) -> Self:
        """Copy records between chained functions, the default."""
        self._environment._configuration.set("pipeline.object-reuse", False)
        return self

    def is_object_reuse_enabled(self) -> bool:
        """Whether chained functions share records."""
        return bool(self._environment._configuration.get("pipeline.object-reuse"))
