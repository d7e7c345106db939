"""The settings of a job except for checkpoints, under Flink's keys, in frozen groups."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from tidegate.core.errors import ConfigError
from tidegate.core.memory_size import MemorySize
from tidegate.core.modes import (
    ExchangeMode,
    FailoverStrategy,
    LiveLine,
    OnTerminate,
    RestartStrategyType,
    RuntimeExecutionMode,
    StateBackendType,
)
from tidegate.core.options import (
    BOOLEAN,
    LIST,
    MAP,
    MEMORY,
    PORTS,
    TEXT,
    choice,
    duration,
    integer,
    number,
    option,
)

MAX_PARALLELISM = 1 << 15
_MILLISECOND = timedelta(milliseconds=1)
UNLIMITED = (1 << 31) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineSettings:
    """The shape of the job graph, and what functions can read."""

    name: str = option("pipeline.name", TEXT, "Tidegate Streaming Job", "Name of the job.")
    parallelism: int | None = option(
        "parallelism.default",
        integer(1, MAX_PARALLELISM),
        None,
        "Subtasks of an operator that does not set its own. Default: the cores of a local master, "
        "half the task slots of a given Spark session.",
    )
    max_parallelism: int | None = option(
        "pipeline.max-parallelism",
        integer(1, MAX_PARALLELISM),
        None,
        "Number of key groups, the limit for rescaling. Default: by the parallelism, at least 128.",
    )
    chaining: bool = option(
        "pipeline.operator-chaining.enabled",
        BOOLEAN,
        True,
        "Run neighbouring operators in one subtask if there is no exchange between them.",
        ("pipeline.operator-chaining",),
    )
    object_reuse: bool = option(
        "pipeline.object-reuse",
        BOOLEAN,
        False,
        "Pass records between functions without copies. Functions must not change objects that "
        "they received, emitted or stored.",
    )
    function_fusion: bool = option(
        "tidegate.function.fusion",
        BOOLEAN,
        True,
        "Compile simple process functions into loops over their records, with the same results.",
    )
    runtime_mode: RuntimeExecutionMode = option(
        "execution.runtime-mode",
        choice(RuntimeExecutionMode),
        RuntimeExecutionMode.STREAMING,
        "BATCH: only final results, at the end of bounded input. AUTOMATIC: BATCH if all sources "
        "are bounded.",
    )
    auto_watermark_interval: timedelta = option(
        "pipeline.auto-watermark-interval",
        duration(),
        timedelta(milliseconds=200),
        "How often watermark generators emit periodically; 0: only for single records.",
    )
    job_parameters: dict[str, str] = option(
        "pipeline.global-job-parameters",
        MAP,
        {},
        "Parameters of the program, read by RuntimeContext.get_job_parameter().",
    )
    python_files: tuple[str, ...] = option(
        "python.files",
        LIST,
        (),
        "Python files and zip archives that the slots import from.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class StateSettings:
    """Where keyed state lives while the job runs."""

    backend: StateBackendType = option(
        "state.backend.type",
        choice(
            StateBackendType,
            {
                "filesystem": StateBackendType.HASHMAP,
                "jobmanager": StateBackendType.HASHMAP,
            },
        ),
        StateBackendType.HASHMAP,
        "Keyed state as objects in memory, or in RocksDB on local disk.",
        ("state.backend",),
    )
    rocksdb_directories: tuple[str, ...] = option(
        "state.backend.rocksdb.localdir",
        LIST,
        (),
        "Local directories for RocksDB. Default: the temporary directory.",
    )
    rocksdb_memory: MemorySize = option(
        "state.backend.rocksdb.memory.fixed-per-operator",
        MEMORY,
        MemorySize(512 << 20),
        "Memory of each keyed operator of a slot, for RocksDB and for the keys in use.",
    )
    rocksdb_transfer_threads: int = option(
        "state.backend.rocksdb.checkpoint.transfer.thread.num",
        integer(1),
        4,
        "Threads per slot that copy RocksDB's files to and from checkpoints.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class RestartSettings:
    """What happens after a failure."""

    strategy: RestartStrategyType | None = option(
        "restart-strategy.type",
        choice(
            RestartStrategyType,
            {
                "off": RestartStrategyType.NONE,
                "disable": RestartStrategyType.NONE,
                "fixeddelay": RestartStrategyType.FIXED_DELAY,
                "failurerate": RestartStrategyType.FAILURE_RATE,
                "exponentialdelay": RestartStrategyType.EXPONENTIAL_DELAY,
            },
        ),
        None,
        "Default: exponential-delay with checkpointing, none without.",
        ("restart-strategy",),
    )
    fixed_delay_attempts: int = option(
        "restart-strategy.fixed-delay.attempts",
        integer(0),
        1,
        "Restarts before the job fails.",
    )
    fixed_delay: timedelta = option(
        "restart-strategy.fixed-delay.delay",
        duration(),
        timedelta(seconds=1),
        "Wait before a restart.",
    )
    failure_rate_max: int = option(
        "restart-strategy.failure-rate.max-failures-per-interval",
        integer(1),
        1,
        "Failures within the interval before the job fails.",
    )
    failure_rate_interval: timedelta = option(
        "restart-strategy.failure-rate.failure-rate-interval",
        duration(_MILLISECOND),
        timedelta(minutes=1),
        "The interval in which failures are counted.",
    )
    failure_rate_delay: timedelta = option(
        "restart-strategy.failure-rate.delay",
        duration(),
        timedelta(seconds=1),
        "Wait before a restart.",
    )
    initial_backoff: timedelta = option(
        "restart-strategy.exponential-delay.initial-backoff",
        duration(_MILLISECOND),
        timedelta(seconds=1),
        "Wait before the first restart.",
    )
    max_backoff: timedelta = option(
        "restart-strategy.exponential-delay.max-backoff",
        duration(_MILLISECOND),
        timedelta(minutes=1),
        "Longest wait before a restart.",
    )
    backoff_multiplier: float = option(
        "restart-strategy.exponential-delay.backoff-multiplier",
        number(1.0),
        1.5,
        "Factor by which the wait grows with each failure.",
    )
    reset_backoff_threshold: timedelta = option(
        "restart-strategy.exponential-delay.reset-backoff-threshold",
        duration(_MILLISECOND),
        timedelta(hours=1),
        "After running this long without a failure, the wait starts over.",
    )
    jitter: float = option(
        "restart-strategy.exponential-delay.jitter-factor",
        number(0.0, 1.0),
        0.1,
        "Random variation of the wait, as a fraction of it.",
    )
    exponential_attempts: int = option(
        "restart-strategy.exponential-delay.attempts-before-reset-backoff",
        integer(1),
        UNLIMITED,
        "Restarts before the job fails; the count starts over with the wait.",
    )
    failover: FailoverStrategy = option(
        "jobmanager.execution.failover-strategy",
        choice(FailoverStrategy),
        FailoverStrategy.REGION,
        "Reset the whole job, or only the pipeline that failed.",
    )
    poison_skip_after: int | None = option(
        "tidegate.poison-records.skip-after",
        integer(0),
        None,
        "How often the job fails on a record before it skips that record; 0: skips it at once. "
        "Default: records are never skipped.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSettings:
    """How slots and steps run."""

    exchange: ExchangeMode = option(
        "tidegate.exchange",
        choice(ExchangeMode),
        ExchangeMode.AUTO,
        "How steps run: pipelined, over one endless Spark job, in milliseconds; jobs, each as a "
        "Spark job of its own; auto: pipelined if Spark allows it.",
    )
    step_target: timedelta = option(
        "tidegate.step.target-duration",
        duration(_MILLISECOND),
        timedelta(milliseconds=100),
        "How long a step should take under load; slices grow and shrink to meet it.",
    )
    latency_target: timedelta = option(
        "tidegate.step.latency-target",
        duration(),
        timedelta(milliseconds=100),
        "Longest time that a record waits for a step to begin while sources deliver less than a "
        "slice. A shorter time costs more CPU. Sources that fill their slices are read without "
        "a pause.",
        ("execution.buffer-timeout.interval", "execution.buffer-timeout"),
    )
    max_slice_bytes: MemorySize = option(
        "tidegate.step.max-bytes",
        MEMORY,
        MemorySize(32 << 20),
        "Maximum bytes that a source subtask puts into one step.",
    )
    max_slice_records: int = option(
        "tidegate.step.max-records",
        integer(1),
        4_000_000,
        "Maximum records that a source subtask puts into one step.",
    )
    step_attempts: int = option(
        "tidegate.step.attempts",
        integer(1),
        3,
        "How often a step is tried if Spark fails it.",
    )
    slot_start_timeout: timedelta = option(
        "tidegate.slot.start-timeout",
        duration(_MILLISECOND),
        timedelta(seconds=60),
        "Time in which all slots must have started.",
        ("slot.request.timeout",),
    )
    slot_host: str | None = option(
        "tidegate.slot.host",
        TEXT,
        None,
        "Address on which slots listen on a cluster. Default: the executor's address towards "
        "the driver.",
    )
    slot_ports: tuple[int, ...] = option(
        "tidegate.slot.port-range",
        PORTS,
        (0,),
        "Ports on which slots listen, such as 50000-50100. Default: any free port.",
    )
    spill_threshold: MemorySize = option(
        "tidegate.slot.spill-threshold",
        MEMORY,
        MemorySize(256 << 20),
        "Bytes of waiting packets that a slot keeps in memory; the rest goes to disk.",
    )
    heartbeat_interval: timedelta = option(
        "heartbeat.interval",
        duration(10 * _MILLISECOND),
        timedelta(seconds=2),
        "How often slots send a heartbeat to the driver.",
    )
    heartbeat_timeout: timedelta = option(
        "heartbeat.timeout",
        duration(100 * _MILLISECOND),
        timedelta(seconds=20),
        "A slot that does not hear from the driver for this long stops, and the driver replaces "
        "it.",
    )
    cancellation_timeout: timedelta = option(
        "task.cancellation.timeout",
        duration(),
        timedelta(seconds=5),
        "How long user code may continue after a cancellation before its process is killed.",
    )
    live_line: LiveLine = option(
        "tidegate.console.live-line",
        choice(LiveLine),
        LiveLine.AUTO,
        "Show records per second and step time while the job runs; auto: on a terminal.",
    )

    on_terminate: OnTerminate = option(
        "tidegate.on-terminate",
        choice(OnTerminate),
        OnTerminate.CANCEL,
        "What Ctrl-C and SIGTERM do to the job: cancel it, or stop it with a savepoint.",
    )

    def __post_init__(self) -> None:
        if self.heartbeat_timeout <= self.heartbeat_interval:
            raise ConfigError(
                "heartbeat.timeout",
                self.heartbeat_timeout,
                f"give more than the heartbeat.interval of {self.heartbeat_interval}",
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkSettings:
    """The Spark session that Tidegate creates; a session that you pass is not changed."""

    master: str | None = option(
        "tidegate.spark.master",
        TEXT,
        None,
        "Spark master. Default: local[2N], where N is the largest parallelism of the job.",
    )
    driver_memory: MemorySize = option(
        "tidegate.spark.driver-memory",
        MEMORY,
        MemorySize(1 << 30),
        "Heap of Spark's driver.",
    )
    exchange_directory: str | None = option(
        "tidegate.spark.exchange-dir",
        TEXT,
        None,
        "Directory for exchanging DataFrames with slots, and for cached streams: a path or URL "
        "that the driver and all executors can reach. Default: a temporary directory of this "
        "machine.",
    )
    ui: bool = option("tidegate.spark.ui", BOOLEAN, False, "Run Spark's own web interface.")
    log_level: str = option(
        "tidegate.spark.log-level", TEXT, "ERROR", "Spark's log level: ERROR, WARN, INFO, ..."
    )
