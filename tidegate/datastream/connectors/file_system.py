"""Files as sources and sinks."""

from tidegate.common.java_only import java_only
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
from tidegate.connectors.files.parquet import ParquetFormat
from tidegate.connectors.files.rolling import BucketAssigner, RollingPolicy
from tidegate.connectors.files.sink import FileSink, FileSinkBuilder, OutputFileConfig
from tidegate.connectors.files.source import FileSource, FileSourceBuilder

_WHOLE_FILES = "FileSink makes files of the size that its RollingPolicy says."
FileCompactStrategy = java_only("FileCompactStrategy", _WHOLE_FILES)
FileCompactor = java_only("FileCompactor", _WHOLE_FILES)
StreamingFileSink = java_only("StreamingFileSink", "Use FileSink.")
BulkFormat = java_only("BulkFormat", "Use ParquetFormat, CsvFormat or JsonFormat with FileSource.")
_SPLITS = "FileSource finds and assigns files by itself."
FileEnumeratorProvider = java_only("FileEnumeratorProvider", _SPLITS)
FileSplitAssignerProvider = java_only("FileSplitAssignerProvider", _SPLITS)

__all__ = [
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
    "OutputFileConfig",
    "ParquetEncoding",
    "ParquetFormat",
    "RollingPolicy",
    "StreamFormat",
    "StreamingFileSink",
    "TextLineFormat",
]
