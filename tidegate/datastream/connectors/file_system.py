"""Files as sources and sinks."""

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
