"""The DataStream API, under PyFlink's names."""

from tidegate.datastream import functions, window
from tidegate.datastream.async_data_stream import AsyncDataStream
from tidegate.datastream.broadcast_stream import BroadcastConnectedStream, BroadcastStream
from tidegate.datastream.checkpoint_config import CheckpointConfig, ExternalizedCheckpointCleanup
from tidegate.datastream.checkpoint_storage import (
    CheckpointStorage,
    CustomCheckpointStorage,
    FileSystemCheckpointStorage,
    JobManagerCheckpointStorage,
)
from tidegate.datastream.checkpointing_mode import CheckpointingMode
from tidegate.datastream.connected_streams import ConnectedStreams
from tidegate.datastream.data_stream import DataStream
from tidegate.datastream.data_stream_sink import DataStreamSink
from tidegate.datastream.environment import StreamExecutionEnvironment
from tidegate.datastream.execution.closeable_iterator import CloseableIterator
from tidegate.datastream.execution.poison_records import PoisonRecords
from tidegate.datastream.execution_mode import RuntimeExecutionMode
from tidegate.datastream.externalized_checkpoint_retention import ExternalizedCheckpointRetention
from tidegate.datastream.functions import *  # noqa: F403
from tidegate.datastream.joined_streams import CoGroupedStreams, IntervalJoin, JoinedStreams
from tidegate.datastream.keyed_stream import KeyedStream
from tidegate.datastream.output_tag import OutputTag
from tidegate.datastream.slot_sharing_group import MemorySize, SlotSharingGroup
from tidegate.datastream.state_backend import (
    CustomStateBackend,
    EmbeddedRocksDBStateBackend,
    HashMapStateBackend,
    PredefinedOptions,
    StateBackend,
)
from tidegate.datastream.time_characteristic import TimeCharacteristic
from tidegate.datastream.time_domain import TimeDomain
from tidegate.datastream.window import *  # noqa: F403
from tidegate.datastream.windowed_stream import AllWindowedStream, WindowedStream

__all__ = [
    "AllWindowedStream",
    "AsyncDataStream",
    "BroadcastConnectedStream",
    "BroadcastStream",
    "CheckpointConfig",
    "CheckpointStorage",
    "CheckpointingMode",
    "CloseableIterator",
    "CoGroupedStreams",
    "ConnectedStreams",
    "CustomCheckpointStorage",
    "CustomStateBackend",
    "DataStream",
    "DataStreamSink",
    "EmbeddedRocksDBStateBackend",
    "ExternalizedCheckpointCleanup",
    "ExternalizedCheckpointRetention",
    "FileSystemCheckpointStorage",
    "HashMapStateBackend",
    "IntervalJoin",
    "JobManagerCheckpointStorage",
    "JoinedStreams",
    "KeyedStream",
    "MemorySize",
    "OutputTag",
    "PoisonRecords",
    "PredefinedOptions",
    "RuntimeExecutionMode",
    "SlotSharingGroup",
    "StateBackend",
    "StreamExecutionEnvironment",
    "TimeCharacteristic",
    "TimeDomain",
    "WindowedStream",
]
__all__ += functions.__all__ + window.__all__
