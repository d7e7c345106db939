"""Sources and sinks, and the contracts to write others."""

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
