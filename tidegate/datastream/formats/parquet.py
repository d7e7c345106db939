"""Rows, and records of Avro schemas, as Parquet files."""

from typing import Any

from tidegate.connectors.files.avro_schema import AvroSchema
from tidegate.connectors.files.encodings import ParquetEncoding
from tidegate.connectors.files.formats import require_columns
from tidegate.connectors.files.parquet import ParquetFormat
from tidegate.types.infer import as_type_info


class ParquetColumnarRowInputFormat(ParquetFormat):
    """Reads rows of Parquet files: PyFlink's name for `ParquetFormat`."""

    def __init__(
        self,
        row_type: Any,
        hadoop_config: Any = None,
        batch_size: int = 2048,
        is_utc_timestamp: bool = False,
        is_case_sensitive: bool = True,
    ) -> None:
        """Only `row_type` is used: the columns to read, and their types."""
        super().__init__(row_type)


class ParquetBulkWriters:
    """Writes rows as Parquet files: PyFlink's name for `ParquetEncoding`."""

    @staticmethod
    def for_row_type(
        row_type: Any, hadoop_config: Any = None, utc_timestamp: bool = False
    ) -> ParquetEncoding:
        """For `FileSink.for_bulk_format`.

        Args:
            row_type: `Types.ROW_NAMED(...)`, a dataclass, an Arrow or a Spark schema.
            hadoop_config: unused.
            utc_timestamp: unused.
        """
        return ParquetEncoding.of(require_columns(as_type_info(row_type), "Parquet"))


class AvroParquetReaders:
    """Reads Parquet files whose rows are records of an Avro schema."""

    @staticmethod
    def for_generic_record(schema: AvroSchema) -> ParquetFormat:
        """For `FileSource.for_record_stream_format`; records are dicts."""
        return ParquetFormat(schema.type_info(), as_dicts=True)


class AvroParquetWriters:
    """Writes records of an Avro schema as Parquet files."""

    @staticmethod
    def for_generic_record(schema: AvroSchema) -> ParquetEncoding:
        """For `FileSink.for_bulk_format`; records are dicts, or rows."""
        return ParquetEncoding.of(require_columns(schema.type_info(), "Parquet"))


__all__ = [
    "AvroParquetReaders",
    "AvroParquetWriters",
    "ParquetBulkWriters",
    "ParquetColumnarRowInputFormat",
]
