"""The records of a stream as the columns of a Spark table."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
from pyspark.sql.types import StructType

from tidegate.connectors.files.encodings import ParquetEncoding
from tidegate.core.errors import GraphError
from tidegate.stream.batch import Batch
from tidegate.types.arrow import ArrowFormat, arrow_format
from tidegate.types.spark import to_spark_batch, to_spark_schema
from tidegate.types.typeinfo import TypeInformation


class SparkColumns:
    """Converts records of a type to columns that Spark reads; sent to the slots."""

    def __init__(self, type_info: TypeInformation | None, purpose: str) -> None:
        """`purpose` names what needs the columns, such as "a DataFrame"."""
        format = arrow_format(type_info)
        if type_info is None or format is None:
            raise GraphError(
                f"{purpose} needs the type of the records: set output_type on the last operator"
            )
        self._format = format
        self.schema: StructType = to_spark_schema(type_info)

    @property
    def described(self) -> tuple[str, ...]:
        return described(self.schema)

    def encoding(self, without: Sequence[str] = ()) -> ParquetEncoding:
        """Parquet files with all columns except some."""
        kept = [name for name in self._format.field_names if name not in without]
        convert = _Conversion(self._format, kept)
        empty = convert(Batch.of_columns(self._format.encode([]), self._format))
        return ParquetEncoding(empty.schema, convert)


class _Conversion:
    def __init__(self, format: ArrowFormat, kept: list[str]) -> None:
        self._format = format
        self._kept = kept

    def __call__(self, batch: Batch) -> pa.RecordBatch:
        return to_spark_batch(self._format, batch.columns).select(self._kept)


def described(schema: StructType) -> tuple[str, ...]:
    """The columns with their types, for messages."""
    return tuple(f"{field.name} {field.dataType.simpleString()}" for field in schema.fields)
