"""Files as sources and sinks."""

from tidegate.connectors.file_formats import (
    CsvFormat,
    FileFormat,
    JsonLinesFormat,
    StreamFormat,
    TextLineFormat,
)
from tidegate.connectors.file_sink import (
    CsvEncoding,
    Encoder,
    FileEncoding,
    FileSink,
    FileSinkBuilder,
    JsonLinesEncoding,
    OutputFileConfig,
    ParquetEncoding,
    RollingPolicy,
)
from tidegate.connectors.files import FileSource, FileSourceBuilder
from tidegate.connectors.parquet import ParquetFormat

__all__ = [
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
