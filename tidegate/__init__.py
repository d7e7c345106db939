"""Flink's DataStream API, state and fault tolerance for PySpark.

The common names can be imported from here; they are loaded when they are first used, so that
`import tidegate` costs nothing and commands run even where a package is missing.
"""

# ruff: noqa: F403, F405
from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:  # `__all__` chooses among their names
    from tidegate.common import *
    from tidegate.datastream import *
    from tidegate.datastream.connectors import *
    from tidegate.datastream.connectors.file_system import *
    from tidegate.datastream.functions import *
    from tidegate.savepoint import *
    from tidegate.state.descriptors import *
    from tidegate.state.handles import *

_HOMES = (
    "tidegate.common",
    "tidegate.datastream",
    "tidegate.datastream.connectors",
    "tidegate.datastream.connectors.file_system",
    "tidegate.datastream.state",
    "tidegate.savepoint",
)

__all__ = [
    "AggregateFunction",
    "AggregatingState",
    "AggregatingStateDescriptor",
    "Boundedness",
    "BroadcastProcessFunction",
    "BroadcastState",
    "CallbackSource",
    "CheckpointConfig",
    "CheckpointListener",
    "CheckpointedFunction",
    "CheckpointingMode",
    "CoFlatMapFunction",
    "CoMapFunction",
    "CoProcessFunction",
    "Configuration",
    "ConnectedStreams",
    "CsvEncoding",
    "CsvFormat",
    "DataGeneratorSource",
    "DataStream",
    "DataStreamSink",
    "Duration",
    "EmbeddedRocksDBStateBackend",
    "Encoder",
    "ExternalizedCheckpointRetention",
    "FileSink",
    "FileSource",
    "FileSystemCheckpointStorage",
    "FilterFunction",
    "FlatMapFunction",
    "FunctionInitializationContext",
    "FunctionSnapshotContext",
    "HashMapStateBackend",
    "JobClient",
    "JobExecutionResult",
    "JobManagerCheckpointStorage",
    "JobStatus",
    "JsonLinesEncoding",
    "JsonLinesFormat",
    "KeySelector",
    "KeyedBroadcastProcessFunction",
    "KeyedCoProcessFunction",
    "KeyedProcessFunction",
    "KeyedStream",
    "ListState",
    "ListStateDescriptor",
    "MapFunction",
    "MapState",
    "MapStateDescriptor",
    "NumberSequenceSource",
    "OutputTag",
    "ParquetEncoding",
    "ParquetFormat",
    "Partitioner",
    "PoisonRecords",
    "ProcessFunction",
    "ReadOnlyBroadcastState",
    "ReduceFunction",
    "ReducingState",
    "ReducingStateDescriptor",
    "RestartStrategies",
    "Row",
    "RowKind",
    "RuntimeContext",
    "RuntimeExecutionMode",
    "Sink",
    "SinkFunction",
    "SocketSource",
    "Source",
    "SourceFunction",
    "StateReader",
    "StateTtlConfig",
    "StateWriter",
    "StreamExecutionEnvironment",
    "TextLineFormat",
    "Time",
    "TimeDomain",
    "TypeInformation",
    "Types",
    "ValueState",
    "ValueStateDescriptor",
    "WatermarkStrategy",
    "dispose_savepoint",
    "durable",
    "state_reader",
    "state_writer",
]


if not TYPE_CHECKING:  # a type checker would take every name for an export

    def __getattr__(name: str) -> Any:
        if name in __all__:
            for home in _HOMES:
                found = getattr(import_module(home), name, None)
                if found is not None:
                    globals()[name] = found
                    return found
        raise AttributeError(f"module 'tidegate' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
