"""Spark DataFrames at both ends of a job."""

from __future__ import annotations

import uuid

from pyspark.sql import DataFrame, SparkSession

from tidegate.connectors.files.parquet import ParquetFormat
from tidegate.connectors.files.sink import FileSink
from tidegate.connectors.files.source import FileSource
from tidegate.connectors.spark.columns import SparkColumns
from tidegate.core.errors import GraphError
from tidegate.types.spark import type_info_of_spark
from tidegate.types.typeinfo import TypeInformation


def from_dataframe(frame: DataFrame, work_directory: str) -> FileSource:
    """The rows of a DataFrame, which Spark computes once, now.

    They are written as Parquet below `work_directory`, which the slots must reach, so that they can
    be read again after a failure.
    """
    if frame.isStreaming:
        raise GraphError(
            "from_dataframe() takes a bounded DataFrame, but this one is streaming: use "
            "from_streaming_dataframe()"
        )
    type_info = type_info_of_spark(frame.schema)
    path = f"{work_directory.rstrip('/')}/dataframe-{uuid.uuid4().hex}"
    frame.write.parquet(path)
    return FileSource(path, ParquetFormat(type_info))


class DataFrameSink(FileSink):
    """Parquet files that can be read as a DataFrame once the job has finished."""

    def __init__(self, directory: str, type_info: TypeInformation | None) -> None:
        columns = SparkColumns(type_info, "a DataFrame")
        self._spark_schema = columns.schema
        super().__init__(directory, columns.encoding(), is_table=True)

    def read(self, spark: SparkSession) -> DataFrame:
        """What the job wrote; call it after the job has finished."""
        return spark.read.schema(self._spark_schema).parquet(self._directory)
