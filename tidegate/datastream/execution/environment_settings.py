"""The settings of an environment, under PyFlink's names."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Self

from tidegate.common.configuration import Configuration
from tidegate.common.execution_config import ExecutionConfig
from tidegate.common.restart_strategy import RestartStrategies, RestartStrategyConfiguration
from tidegate.core.durations import DurationLike, as_milliseconds
from tidegate.core.modes import CheckpointingMode, RuntimeExecutionMode, StateBackendType
from tidegate.datastream.checkpoint_config import CheckpointConfig
from tidegate.datastream.execution.config_file import file_settings
from tidegate.datastream.execution.executor import JobExecutor
from tidegate.datastream.execution.hosting import hosting
from tidegate.datastream.execution.job_configuration import JobConfiguration
from tidegate.datastream.execution.operator_settings import checked_buffer_timeout
from tidegate.datastream.execution.poison_records import PoisonRecords
from tidegate.datastream.execution.sink_operators import SinkLike
from tidegate.datastream.state_backend import (
    EmbeddedRocksDBStateBackend,
    HashMapStateBackend,
    StateBackend,
)
from tidegate.datastream.time_characteristic import TimeCharacteristic


class EnvironmentSettings:
    """Everything that is set once for a job; each setter checks its argument."""

    def __init__(self, executor: JobExecutor) -> None:
        self._executor = hosting().executor or executor
        hosted = hosting()
        defaults = {**file_settings(), **hosted.defaults}
        self._configuration = JobConfiguration(defaults, hosted.settings)
        self._restart_strategy = RestartStrategies.fall_back_restart()
        self._unlimited_target: timedelta | None = None
        """What stands for a buffer timeout of -1, if that was set."""
        self._time_characteristic = TimeCharacteristic.EventTime
        self._dead_letters: SinkLike | None = None

    def configure(self, configuration: Configuration | Mapping[str, Any]) -> None:
        """Set many settings at once.

        Raises:
            ConfigError: a key is unknown, or a value is invalid.
        """
        self._configuration.update(configuration.items())

    def get_config(self) -> ExecutionConfig:
        """The execution settings of the environment."""
        return ExecutionConfig(self)

    def set_parallelism(self, parallelism: int) -> Self:
        """Set the parallelism of operators that do not set their own."""
        self._configuration.set("parallelism.default", parallelism)
        return self

    def get_parallelism(self) -> int:
        """The default parallelism of operators."""
        parallelism: int | None = self._configuration.get("parallelism.default")
        return self._executor.default_parallelism() if parallelism is None else parallelism

    def set_max_parallelism(self, max_parallelism: int) -> Self:
        """Set the number of key groups, the limit for rescaling."""
        self._configuration.set("pipeline.max-parallelism", max_parallelism)
        return self

    def get_max_parallelism(self) -> int:
        """The number of key groups, if set; otherwise -1."""
        max_parallelism: int | None = self._configuration.get("pipeline.max-parallelism")
        return -1 if max_parallelism is None else max_parallelism

    def set_runtime_mode(self, execution_mode: RuntimeExecutionMode | str) -> Self:
        """Choose streaming, batch, or by the sources of the program."""
        self._configuration.set("execution.runtime-mode", execution_mode)
        return self

    def set_stream_time_characteristic(self, characteristic: TimeCharacteristic) -> Self:
        """Set the interval of watermarks: none for processing time, else 200 ms, as in Flink.

        Windows choose their time by themselves: `TumblingProcessingTimeWindows`, for example.
        """
        is_event_time = characteristic is not TimeCharacteristic.ProcessingTime
        self.get_config().set_auto_watermark_interval(200 if is_event_time else 0)
        self._time_characteristic = characteristic
        return self

    def get_stream_time_characteristic(self) -> TimeCharacteristic:
        """Return what was set last."""
        return self._time_characteristic

    def disable_operator_chaining(self) -> Self:
        """Give every operator its own vertex."""
        self._configuration.set("pipeline.operator-chaining.enabled", False)
        return self

    def is_chaining_enabled(self) -> bool:
        """Whether operators share a vertex if possible."""
        return bool(self._configuration.get("pipeline.operator-chaining.enabled"))

    def set_buffer_timeout(self, timeout_millis: DurationLike) -> Self:
        """Set the longest time that a record waits for a step to begin.

        A shorter time costs more CPU; -1 waits as long as a step under full load takes.
        """
        milliseconds = checked_buffer_timeout(timeout_millis)
        target = timedelta(milliseconds=milliseconds)
        self._unlimited_target = None
        if milliseconds < 0:
            target = self._configuration.get("tidegate.step.target-duration")
            self._unlimited_target = target
        self._configuration.set("tidegate.step.latency-target", target)
        return self

    def get_buffer_timeout(self) -> int:
        """The longest time that a record waits for a step to begin, in milliseconds."""
        target = self._configuration.get("tidegate.step.latency-target")
        return -1 if target == self._unlimited_target else as_milliseconds(target)

    def get_default_local_parallelism(self) -> int:
        """The parallelism of jobs that do not set one."""
        return self._executor.default_parallelism()

    def set_restart_strategy(self, strategy: RestartStrategyConfiguration) -> Self:
        """Set what happens after a failure."""
        self._restart_strategy = strategy
        if strategy.strategy is None:
            self._configuration.unset("restart-strategy.type")
        else:
            self._configuration.set("restart-strategy.type", strategy.strategy)
            self._configuration.update(strategy.settings)
        return self

    def get_restart_strategy(self) -> RestartStrategyConfiguration:
        """What happens after a failure."""
        return self._restart_strategy

    def on_poison_record(self, choice: PoisonRecords) -> Self:
        """Choose what happens to a record on which user code fails repeatedly."""
        if not isinstance(choice, PoisonRecords):
            raise TypeError(
                f"expected PoisonRecords.fail() or PoisonRecords.skip(), got {choice!r}"
            )
        self._dead_letters = choice.dead_letters
        if choice.skip_after is None:
            self._configuration.unset("tidegate.poison-records.skip-after")
        else:
            self._configuration.set("tidegate.poison-records.skip-after", choice.skip_after)
        return self

    def set_state_backend(self, state_backend: StateBackend) -> Self:
        """Choose where the state of running operators is kept."""
        self._configuration.update(state_backend.settings())
        return self

    def get_state_backend(self) -> StateBackend:
        """Where the state of running operators is kept."""
        if self._configuration.get("state.backend.type") is StateBackendType.HASHMAP:
            return HashMapStateBackend()
        configuration = self._configuration
        return EmbeddedRocksDBStateBackend(
            configuration.get("execution.checkpointing.incremental"),
            configuration.get("state.backend.rocksdb.localdir"),
            configuration.get("state.backend.rocksdb.checkpoint.transfer.thread.num"),
        )

    def enable_checkpointing(
        self, interval: DurationLike, mode: CheckpointingMode | None = None
    ) -> Self:
        """Take a checkpoint every `interval`: a timedelta, milliseconds, or text like "30 s"."""
        self._configuration.set("execution.checkpointing.interval", interval)
        if mode is not None:
            self._configuration.set("execution.checkpointing.mode", mode)
        return self

    def get_checkpoint_config(self) -> CheckpointConfig:
        """The checkpoint settings of the environment."""
        return CheckpointConfig(self._configuration)

    def get_checkpoint_interval(self) -> int:
        """Milliseconds; -1 while checkpointing is off."""
        return self.get_checkpoint_config().get_checkpoint_interval()

    def get_checkpointing_mode(self) -> CheckpointingMode:
        """Exactly once, or at least once."""
        return self.get_checkpoint_config().get_checkpointing_mode()

    get_checkpointing_consistency_mode = get_checkpointing_mode

    def is_unaligned_checkpoints_enabled(self) -> bool:
        """Whether barriers overtake records."""
        return self.get_checkpoint_config().is_unaligned_checkpoints_enabled()

    def is_force_unaligned_checkpoints(self) -> bool:
        """Whether checkpoints are unaligned even where Flink would refuse it."""
        return self.get_checkpoint_config().is_force_unaligned_checkpoints()

    def set_default_savepoint_directory(self, directory: str) -> Self:
        """Set where savepoints are written by default."""
        self._configuration.set("execution.checkpointing.savepoint-dir", directory)
        return self

    def get_default_savepoint_directory(self) -> str | None:
        """Where savepoints are written by default."""
        directory: str | None = self._configuration.get("execution.checkpointing.savepoint-dir")
        return directory

    def add_python_file(self, file_path: str) -> None:
        """Let the slots import from a Python file or a zip archive."""
        files = self._configuration.get("python.files")
        self._configuration.set("python.files", (*files, str(file_path)))

    def add_jars(self, *jars_path: str) -> None:
        """Give jars to Spark, for DataFrame sources; no Java code runs in slots."""
        known = self._configuration.get_spark("spark.jars")
        paths = [path.removeprefix("file://") for path in jars_path]
        self._configuration.set("spark.jars", ",".join([*([known] if known else []), *paths]))
