"""The choices of settings."""

from __future__ import annotations

from enum import Enum


class RuntimeExecutionMode(Enum):
    """Whether a bounded job emits results as they come, or only final ones at the end."""

    STREAMING = "STREAMING"
    BATCH = "BATCH"
    AUTOMATIC = "AUTOMATIC"


class CheckpointingMode(Enum):
    """What a checkpoint guarantees after a recovery."""

    EXACTLY_ONCE = "EXACTLY_ONCE"
    AT_LEAST_ONCE = "AT_LEAST_ONCE"


class ExternalizedCheckpointRetention(Enum):
    """What happens to the last checkpoint when a job is cancelled."""

    RETAIN_ON_CANCELLATION = "RETAIN_ON_CANCELLATION"
    DELETE_ON_CANCELLATION = "DELETE_ON_CANCELLATION"
    NO_EXTERNALIZED_CHECKPOINTS = "NO_EXTERNALIZED_CHECKPOINTS"


class SavepointFormat(Enum):
    """How the state of a savepoint is stored."""

    CANONICAL = "canonical"
    """As Parquet by operator and state: any backend restores it, and Spark reads it."""
    NATIVE = "native"
    """As the state backend stores it in checkpoints: fast, and only for that backend."""


class RestoreMode(Enum):
    """Who owns the checkpoint that a job starts from."""

    NO_CLAIM = "NO_CLAIM"
    """Its owner: the job never deletes it, nor references its files."""
    CLAIM = "CLAIM"
    """The job, which deletes it when it has a checkpoint of its own."""


class OnTerminate(Enum):
    """What happens to a job when its driver is interrupted or terminated."""

    CANCEL = "cancel"
    STOP = "stop"
    """It stops with a savepoint."""


class StateBackendType(Enum):
    """Where keyed state lives while a job runs."""

    HASHMAP = "hashmap"
    ROCKSDB = "rocksdb"


class CheckpointStorageType(Enum):
    """Where checkpoints are written to."""

    JOBMANAGER = "jobmanager"
    FILESYSTEM = "filesystem"


class RestartStrategyType(Enum):
    """Whether, and after how long, a failed job restarts."""

    NONE = "none"
    FIXED_DELAY = "fixed-delay"
    FAILURE_RATE = "failure-rate"
    EXPONENTIAL_DELAY = "exponential-delay"


class FailoverStrategy(Enum):
    """What is reset when part of the job fails."""

    FULL = "full"
    REGION = "region"


class ExchangeMode(Enum):
    """How steps run between slots."""

    AUTO = "auto"
    """Over an endless Spark job if Spark allows it, otherwise as Spark jobs."""
    PIPELINED = "pipelined"
    JOBS = "jobs"


class LiveLine(Enum):
    """Whether progress is shown while a job runs."""

    AUTO = "auto"
    ON = "on"
    OFF = "off"
