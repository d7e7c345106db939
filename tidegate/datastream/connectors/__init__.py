"""Sources and sinks, and the contracts to write others."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from tidegate.datastream.connectors.base import Boundedness, DeliveryGuarantee, Sink, Source
from tidegate.datastream.connectors.datagen import DataGeneratorSource
from tidegate.datastream.connectors.durable_sources import CallbackSource, durable
from tidegate.datastream.connectors.file_system import (
    FileSink,
    FileSinkBuilder,
    FileSource,
    FileSourceBuilder,
    OutputFileConfig,
    RollingPolicy,
    StreamFormat,
)
from tidegate.datastream.connectors.number_seq import NumberSequenceSource
from tidegate.datastream.connectors.socket import SocketSource

__all__ = [
    "Boundedness",
    "CallbackSource",
    "DataGeneratorSource",
    "DeliveryGuarantee",
    "FileSink",
    "FileSinkBuilder",
    "FileSource",
    "FileSourceBuilder",
    "NumberSequenceSource",
    "OutputFileConfig",
    "RollingPolicy",
    "Sink",
    "SocketSource",
    "Source",
    "StreamFormat",
    "durable",
]

_ELSEWHERE = {
    "dynamic_kafka": (
        "DynamicKafkaSource",
        "DynamicKafkaSourceBuilder",
        "KafkaMetadataService",
        "KafkaStreamSetSubscriber",
        "KafkaStreamSubscriber",
        "SingleClusterTopicMetadataService",
        "StreamPatternSubscriber",
    ),
    "file_system": (
        "BucketAssigner",
        "FileEnumeratorProvider",
        "FileSplitAssignerProvider",
        "StreamingFileSink",
    ),
    "jdbc": ("JdbcConnectionOptions", "JdbcExecutionOptions", "JdbcSink"),
    "kafka": (
        "FlinkKafkaConsumer",
        "FlinkKafkaProducer",
        "KafkaRecordDeserializationSchema",
        "KafkaSource",
        "Semantic",
    ),
    "pulsar": ("PulsarSource", "PulsarSourceBuilder", "StartCursor", "StopCursor"),
    "rabbitmq": ("RMQConnectionConfig", "RMQSink", "RMQSource"),
}
"""Names that PyFlink has here too; their modules are loaded when they are used."""

if not TYPE_CHECKING:  # else every name would be one of this module

    def __getattr__(name: str) -> Any:
        for module, names in _ELSEWHERE.items():
            if name in names:
                return getattr(import_module(f"{__name__}.{module}"), name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name)
