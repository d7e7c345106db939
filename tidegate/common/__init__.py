"""Types, rows, configuration, times and jobs, under PyFlink's names."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from tidegate.common import serialization
from tidegate.common.completable_future import CompletableFuture
from tidegate.common.config_options import ConfigOption, ConfigOptions
from tidegate.common.configuration import Configuration
from tidegate.common.execution_config import ExecutionConfig
from tidegate.common.input_dependency_constraint import InputDependencyConstraint
from tidegate.common.job_client import JobClient
from tidegate.common.job_execution_result import JobExecutionResult
from tidegate.common.job_id import JobID
from tidegate.common.job_status import JobStatus
from tidegate.common.restart_strategy import RestartStrategies, RestartStrategyConfiguration
from tidegate.common.serialization import *  # noqa: F403
from tidegate.common.serializer import TypeSerializer
from tidegate.common.time import Duration, Instant, Time, TimeUnit
from tidegate.common.typeinfo import TypeInformation, Types
from tidegate.common.types import Row, RowKind
from tidegate.common.watermark_strategy import (
    AssignerWithPeriodicWatermarksWrapper,
    TimestampAssigner,
    Watermark,
    WatermarkGenerator,
    WatermarkOutput,
    WatermarkStrategy,
)

__all__ = [
    "AssignerWithPeriodicWatermarksWrapper",
    "CompletableFuture",
    "ConfigOption",
    "ConfigOptions",
    "Configuration",
    "Duration",
    "ExecutionConfig",
    "InputDependencyConstraint",
    "Instant",
    "JobClient",
    "JobExecutionResult",
    "JobID",
    "JobStatus",
    "RestartStrategies",
    "RestartStrategyConfiguration",
    "Row",
    "RowKind",
    "Time",
    "TimeUnit",
    "TimestampAssigner",
    "TypeInformation",
    "TypeSerializer",
    "Types",
    "Watermark",
    "WatermarkGenerator",
    "WatermarkOutput",
    "WatermarkStrategy",
]
__all__ += serialization.__all__

if not TYPE_CHECKING:  # else every name would be one of this module

    def __getattr__(name: str) -> Any:
        """Formats that PyFlink has here too: `JsonRowSerializationSchema` and the like."""
        for format in ("avro", "csv", "json"):
            if name in (
                f"{format.title()}Row{kind}Schema" for kind in ("Serialization", "Deserialization")
            ):
                return getattr(import_module(f"tidegate.datastream.formats.{format}"), name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name)
