"""Files as sources and sinks."""

from tidegate.connectors.file_encodings import (
    CsvEncoding,
    Encoder,
    FileEncoding,
    JsonLinesEncoding,
    ParquetEncoding,
)
from tidegate.connectors.file_formats import (
    CsvFormat,
    FileFormat,
    JsonLinesFormat,
    StreamFormat,
    TextLineFormat,
)
from tidegate.connectors.file_sink import FileSink, FileSinkBuilder, OutputFileConfig
from tidegate.connectors.files import FileSource, FileSourceBuilder
from tidegate.connectors.parquet import ParquetFormat
from tidegate.connectors.rolling import BucketAssigner, RollingPolicy

__all__ = [
    "BucketAssigner",
    "CsvEncoding",
    "CsvFormat",
    "Encoder",
    "FileEncoding",
    "FileFormat",
    "FileSink",
    "FileSinkBuilder",
    "FileSource",
    "FileSourceBuilder",
    "JsonLinesEncoding",
    "JsonLinesFormat",
    "OutputFileConfig",
    "ParquetEncoding",
    "ParquetFormat",
    "RollingPolicy",
    "StreamFormat",
    "TextLineFormat",
]
