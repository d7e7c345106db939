"""The contracts of sources and sinks."""

from tidegate.connectors.guarantee import DeliveryGuarantee
from tidegate.connectors.sink import Sink, SinkWriter, WriterContext
from tidegate.connectors.source import (
    Boundedness,
    InputStatus,
    Poll,
    ReaderContext,
    Source,
    SourceReader,
    SplitEnumerator,
)

__all__ = [
    "Boundedness",
    "DeliveryGuarantee",
    "InputStatus",
    "Poll",
    "ReaderContext",
    "Sink",
    "SinkWriter",
    "Source",
    "SourceReader",
    "SplitEnumerator",
    "WriterContext",
]
