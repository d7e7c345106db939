"""Flink's DataStream API, state and fault tolerance for PySpark.

The common names can be imported from here; they are loaded when they are first used, so that
`import tidegate` costs nothing and commands run even where a package is missing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from tidegate.common import (
        Configuration,
        Duration,
        JobClient,
        JobExecutionResult,
        JobStatus,
        RestartStrategies,
        Row,
        RowKind,
        Time,
        TypeInformation,
        Types,
        WatermarkStrategy,
    )
    from tidegate.datastream import (
        AggregateFunction,
        BroadcastProcessFunction,
        CheckpointConfig,
        CheckpointedFunction,
        CheckpointingMode,
        CheckpointListener,
        CoFlatMapFunction,
        CoMapFunction,
        ConnectedStreams,
        CoProcessFunction,
        DataStream,
        DataStreamSink,
        EmbeddedRocksDBStateBackend,
        ExternalizedCheckpointRetention,
        FileSystemCheckpointStorage,
        FilterFunction,
        FlatMapFunction,
        FunctionInitializationContext,
        FunctionSnapshotContext,
        HashMapStateBackend,
        JobManagerCheckpointStorage,
        KeyedBroadcastProcessFunction,
        KeyedCoProcessFunction,
        KeyedProcessFunction,
        KeyedStream,
        KeySelector,
        MapFunction,
        OutputTag,
        Partitioner,
        PoisonRecords,
        ProcessFunction,
        ReduceFunction,
        RuntimeContext,
        RuntimeExecutionMode,
        SinkFunction,
        SourceFunction,
        StreamExecutionEnvironment,
        TimeDomain,
    )
    from tidegate.datastream.connectors import (
        Boundedness,
        CallbackSource,
        DataGeneratorSource,
        NumberSequenceSource,
        Sink,
        SocketSource,
        Source,
        durable,
    )
    from tidegate.datastream.connectors.file_system import (
        CsvEncoding,
        CsvFormat,
        Encoder,
        FileSink,
        FileSource,
        JsonLinesEncoding,
        JsonLinesFormat,
        ParquetEncoding,
        ParquetFormat,
        TextLineFormat,
    )
    from tidegate.datastream.state import (
        AggregatingState,
        AggregatingStateDescriptor,
        BroadcastState,
        ListState,
        ListStateDescriptor,
        MapState,
        MapStateDescriptor,
        ReadOnlyBroadcastState,
        ReducingState,
        ReducingStateDescriptor,
        StateTtlConfig,
        ValueState,
        ValueStateDescriptor,
    )
    from tidegate.state_data import (
        StateReader,
        StateWriter,
        dispose_savepoint,
        state_reader,
        state_writer,
    )

_HOMES = (
    "tidegate.common",
    "tidegate.datastream",
    "tidegate.datastream.connectors",
    "tidegate.datastream.connectors.file_system",
    "tidegate.datastream.state",
    "tidegate.state_data",
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
