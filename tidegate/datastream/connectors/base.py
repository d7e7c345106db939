"""The contracts of sources and sinks, and helpers to implement them."""

from tidegate.common.java_only import java_only
from tidegate.connectors.guarantee import Delivery, DeliveryGuarantee, Replay
from tidegate.connectors.sink import (
    Committer,
    CommittingWriter,
    Sink,
    SinkWriter,
    SupportsCommitter,
    WriterContext,
)
from tidegate.connectors.source import (
    Boundedness,
    InputStatus,
    Poll,
    ReaderContext,
    Source,
    SourceReader,
    SplitEnumerator,
)
from tidegate.connectors.splits import Cursor, KnownSplits, SequentialReader
from tidegate.core.permit import Permit
from tidegate.stream.batch import Batch
from tidegate.types.arrow import ArrowFormat

_ADVICE = "Sinks may transform their input themselves: write your own Sink."
StreamTransformer = java_only("StreamTransformer", _ADVICE)
SupportsPreprocessing = java_only("SupportsPreprocessing", _ADVICE)

__all__ = [
    "ArrowFormat",
    "Batch",
    "Boundedness",
    "Committer",
    "CommittingWriter",
    "Cursor",
    "Delivery",
    "DeliveryGuarantee",
    "InputStatus",
    "KnownSplits",
    "Permit",
    "Poll",
    "ReaderContext",
    "Replay",
    "SequentialReader",
    "Sink",
    "SinkWriter",
    "Source",
    "SourceReader",
    "SplitEnumerator",
    "StreamTransformer",
    "SupportsCommitter",
    "SupportsPreprocessing",
    "WriterContext",
]
