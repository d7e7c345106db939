"""Files as sources and sinks."""

from tidegate.common.java_only import java_only
from tidegate.connectors.files.avro import AvroEncoding, AvroFormat
from tidegate.connectors.files.encodings import (
    CsvEncoding,
    Encoder,
    FileEncoding,
    JsonLinesEncoding,
    ParquetEncoding,
)
from tidegate.connectors.files.formats import (
    CsvFormat,
    FileFormat,
    JsonLinesFormat,
    StreamFormat,
    TextLineFormat,
)
from tidegate.connectors.files.formats import FileFormat as BulkFormat
from tidegate.connectors.files.orc import OrcEncoding, OrcFormat
from tidegate.connectors.files.parquet import ParquetFormat
from tidegate.connectors.files.rolling import BucketAssigner, RollingPolicy
from tidegate.connectors.files.sink import FileSink, FileSinkBuilder, OutputFileConfig
from tidegate.connectors.files.source import FileSource, FileSourceBuilder

_WHOLE_FILES = "FileSink writes files of the size set in its RollingPolicy."
FileCompactStrategy = java_only("FileCompactStrategy", _WHOLE_FILES)
FileCompactor = java_only("FileCompactor", _WHOLE_FILES)
StreamingFileSink = java_only("StreamingFileSink", "Use FileSink.")
_SPLITS = "FileSource finds and assigns files by itself."
FileEnumeratorProvider = java_only("FileEnumeratorProvider", _SPLITS)
FileSplitAssignerProvider = java_only("FileSplitAssignerProvider", _SPLITS)

__all__ = [
    "AvroEncoding",
    "AvroFormat",
    "BucketAssigner",
    "BulkFormat",
    "CsvEncoding",
    "CsvFormat",
    "Encoder",
    "FileCompactStrategy",
    "FileCompactor",
    "FileEncoding",
    "FileEnumeratorProvider",
    "FileFormat",
    "FileSink",
    "FileSinkBuilder",
    "FileSource",
    "FileSourceBuilder",
    "FileSplitAssignerProvider",
    "JsonLinesEncoding",
    "JsonLinesFormat",
    "OrcEncoding",
    "OrcFormat",
    "OutputFileConfig",
    "ParquetEncoding",
    "ParquetFormat",
    "RollingPolicy",
    "StreamFormat",
    "StreamingFileSink",
    "TextLineFormat",
]
