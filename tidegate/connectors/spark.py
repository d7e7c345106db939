"""Spark DataFrames at both ends of a job."""

from __future__ import annotations

import uuid

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from tidegate.connectors.file_encodings import ParquetEncoding
from tidegate.connectors.file_sink import FileSink
from tidegate.connectors.files import FileSource
from tidegate.connectors.parquet import ParquetFormat
from tidegate.core.errors import GraphError
from tidegate.stream.batch import Batch
from tidegate.types.arrow import ArrowFormat, arrow_format
from tidegate.types.spark import to_spark_batch, to_spark_schema, type_info_of_spark
from tidegate.types.typeinfo import TypeInformation


def from_dataframe(frame: DataFrame, work_directory: str) -> FileSource:
    """The rows of a DataFrame, which Spark computes once, here.

    They are written as Parquet below `work_directory`, which the slots must reach; being files
    with positions, they can be read again after a failure.
    """
    if frame.isStreaming:
        raise GraphError("from_dataframe() takes a bounded DataFrame, this one is streaming")
    type_info = type_info_of_spark(frame.schema)
    path = f"{work_directory.rstrip('/')}/dataframe-{uuid.uuid4().hex}"
    frame.write.parquet(path)
    return FileSource(path, ParquetFormat(type_info))


class DataFrameSink(FileSink):
    """Parquet files that are a DataFrame once the job has finished."""

    def __init__(self, directory: str, type_info: TypeInformation | None) -> None:
        format = None if type_info is None else arrow_format(type_info)
        if type_info is None or format is None:
            raise GraphError(
                "a DataFrame needs the type of the records: give the last operator an output_type"
            )
        self._spark_schema = to_spark_schema(type_info)
        schema = to_spark_batch(format, format.encode([])).schema
        encoding = ParquetEncoding(schema, _SparkColumns(format))
        super().__init__(directory, encoding, is_table=True)

    def read(self, spark: SparkSession) -> DataFrame:
        """What the job wrote; ask when it has finished."""
        return spark.read.schema(self._spark_schema).parquet(self._directory)


class _SparkColumns:
    def __init__(self, format: ArrowFormat) -> None:
        self._format = format

    def __call__(self, batch: Batch) -> pa.RecordBatch:
        return to_spark_batch(self._format, batch.columns)
