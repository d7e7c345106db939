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
        """Set how often watermark generators emit; 0: only in `on_event`."""
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
        """Share objects between functions: none may change what it has received or emitted."""
        self._environment._configuration.set("pipeline.object-reuse", True)
        return self

    def disable_object_reuse(self) -> Self:
        """Copy records between chained functions, the default."""
        self._environment._configuration.set("pipeline.object-reuse", False)
        return self

    def is_object_reuse_enabled(self) -> bool:
        """Whether chained functions share records."""
        return bool(self._environment._configuration.get("pipeline.object-reuse"))

    # --- without effect here: one line in the log says so ---------------------------------------

    def enable_closure_cleaner(self) -> Self:
        """Accepted for Flink's programs: it has no effect here, and the log says so."""
        return self._foreign("pipeline.closure-cleaner-level", "RECURSIVE")

    def disable_closure_cleaner(self) -> Self:
        """Accepted for Flink's programs: it has no effect here, and the log says so."""
        return self._foreign("pipeline.closure-cleaner-level", "NONE")

    def enable_force_kryo(self) -> Self:
        """Accepted for Flink's programs: it has no effect here, and the log says so."""
        return self._foreign("pipeline.force-kryo", True)

    def disable_force_kryo(self) -> Self:
        """Accepted for Flink's programs: it has no effect here, and the log says so."""
        return self._foreign("pipeline.force-kryo", False)

    def enable_force_avro(self) -> Self:
        """Accepted for Flink's programs: it has no effect here, and the log says so."""
        return self._foreign("pipeline.force-avro", True)

    def disable_force_avro(self) -> Self:
        """Accepted for Flink's programs: it has no effect here, and the log says so."""
        return self._foreign("pipeline.force-avro", False)

    def enable_generic_types(self) -> Self:
        """Accepted for Flink's programs: it has no effect here, and the log says so."""
        return self._foreign("pipeline.generic-types", True)

    def disable_generic_types(self) -> Self:
        """Accepted for Flink's programs: it has no effect here, and the log says so."""
        return self._foreign("pipeline.generic-types", False)

    def enable_auto_generated_uids(self) -> Self:
        """Accepted for Flink's programs: it has no effect here, and the log says so."""
        return self._foreign("pipeline.auto-generate-uids", True)

    def disable_auto_generated_uids(self) -> Self:
        """Accepted for Flink's programs: it has no effect here, and the log says so."""
        return self._foreign("pipeline.auto-generate-uids", False)

    def set_use_snapshot_compression(self, use_snapshot_compression: bool) -> Self:
        """Accepted for Flink's programs: it has no effect here, and the log says so."""
        return self._foreign(
            "execution.checkpointing.snapshot-compression", use_snapshot_compression
        )

    def set_latency_tracking_interval(self, interval: int) -> Self:
        """Accepted for Flink's programs: it has no effect here, and the log says so."""
        return self._foreign("metrics.latency.interval", interval)

    def set_task_cancellation_interval(self, interval: int) -> Self:
        """Accepted for Flink's programs: it has no effect here, and the log says so."""
        return self._foreign("task.cancellation.interval", interval)

    def _foreign(self, key: str, value: object) -> Self:
        self._environment.configure({key: value})
        return self
