"""Parquet in the classes of Java: PyFlink's names, which only wrap Java classes."""

from tidegate.common.java_only import java_only

_ADVICE = "Use ParquetFormat and ParquetEncoding of tidegate.datastream.connectors.file_system."

AvroParquetReaders = java_only("AvroParquetReaders", _ADVICE)
AvroParquetWriters = java_only("AvroParquetWriters", _ADVICE)
ParquetBulkWriters = java_only("ParquetBulkWriters", _ADVICE)
ParquetColumnarRowInputFormat = java_only("ParquetColumnarRowInputFormat", _ADVICE)

__all__ = [
    "AvroParquetReaders",
    "AvroParquetWriters",
    "ParquetBulkWriters",
    "ParquetColumnarRowInputFormat",
]
