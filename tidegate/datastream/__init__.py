"""The DataStream API, under PyFlink's names."""

from tidegate.datastream.checkpoint_config import CheckpointConfig, ExternalizedCheckpointCleanup
from tidegate.datastream.checkpoint_storage import (
    CheckpointStorage,
    FileSystemCheckpointStorage,
    JobManagerCheckpointStorage,
)
from tidegate.datastream.checkpointing_mode import CheckpointingMode
from tidegate.datastream.closeable_iterator import CloseableIterator
from tidegate.datastream.connected_streams import ConnectedStreams
from tidegate.datastream.data_stream import DataStream
from tidegate.datastream.data_stream_sink import DataStreamSink
from tidegate.datastream.environment import StreamExecutionEnvironment
from tidegate.datastream.execution_mode import RuntimeExecutionMode
from tidegate.datastream.externalized_checkpoint_retention import ExternalizedCheckpointRetention
from tidegate.datastream.functions import (
    AggregateFunction,
    BaseBroadcastProcessFunction,
    BroadcastProcessFunction,
    CoFlatMapFunction,
    CoMapFunction,
    CoProcessFunction,
    FilterFunction,
    FlatMapFunction,
    Function,
    KeyedBroadcastProcessFunction,
    KeyedCoProcessFunction,
    KeyedProcessFunction,
    KeyedStateStore,
    KeySelector,
    MapFunction,
    Partitioner,
    ProcessFunction,
    ReduceFunction,
    RuntimeContext,
    SinkFunction,
    SourceFunction,
    TimerService,
)
from tidegate.datastream.keyed_stream import KeyedStream
from tidegate.datastream.output_tag import OutputTag
from tidegate.datastream.slot_sharing_group import MemorySize, SlotSharingGroup
from tidegate.datastream.state_backend import (
    EmbeddedRocksDBStateBackend,
    HashMapStateBackend,
    StateBackend,
)
from tidegate.datastream.time_domain import TimeDomain

__all__ = [
    "AggregateFunction",
    "BaseBroadcastProcessFunction",
    "BroadcastProcessFunction",
    "CheckpointConfig",
    "CheckpointStorage",
    "CheckpointingMode",
    "CloseableIterator",
    "CoFlatMapFunction",
    "CoMapFunction",
    "CoProcessFunction",
    "ConnectedStreams",
    "DataStream",
    "DataStreamSink",
    "EmbeddedRocksDBStateBackend",
    "ExternalizedCheckpointCleanup",
    "ExternalizedCheckpointRetention",
    "FileSystemCheckpointStorage",
    "FilterFunction",
    "FlatMapFunction",
    "Function",
    "HashMapStateBackend",
    "JobManagerCheckpointStorage",
    "KeySelector",
    "KeyedBroadcastProcessFunction",
    "KeyedCoProcessFunction",
    "KeyedProcessFunction",
    "KeyedStateStore",
    "KeyedStream",
    "MapFunction",
    "MemorySize",
    "OutputTag",
    "Partitioner",
    "ProcessFunction",
    "ReduceFunction",
    "RuntimeContext",
    "RuntimeExecutionMode",
    "SinkFunction",
    "SlotSharingGroup",
    "SourceFunction",
    "StateBackend",
    "StreamExecutionEnvironment",
    "TimeDomain",
    "TimerService",
]
