"""A Spark table as a sink: each checkpoint's rows are appended once.

The table is looked up in the driver. The slots write Parquet files below its location, which become
visible by renames when their checkpoint is durable; new partitions are then added to the catalog.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Sequence
from dataclasses import replace
from enum import Enum
from pathlib import PurePosixPath
from typing import Any

from pyspark.sql import types as spark_types

from tidegate.connectors.driver_side import DriverSide
from tidegate.connectors.files.part_files import (
    ExistingFiles,
    OutputFileConfig,
    PartCommitter,
    PartWriter,
)
from tidegate.connectors.files.rolling import RollingPolicy
from tidegate.connectors.files.sink import FileSink
from tidegate.connectors.sink import Committer, CommittingWriter, WriterContext
from tidegate.connectors.spark.catalog import CatalogTable, FoundTable
from tidegate.connectors.spark.columns import SparkColumns, described
from tidegate.connectors.spark.table_partitions import PartitionAssigner, check_directory
from tidegate.core.errors import ConfigError, GraphError, MissingField, TableMismatch
from tidegate.stream.batch import Batch
from tidegate.types.typeinfo import TypeInformation

_REFRESH_SECONDS = 0.5
_PARTITION_TYPES = (
    spark_types.StringType,
    spark_types.BooleanType,
    spark_types.ByteType,
    spark_types.ShortType,
    spark_types.IntegerType,
    spark_types.LongType,
    spark_types.DateType,
)


class TableMode(Enum):
    """What a job that starts fresh does with the existing rows of a table."""

    APPEND = "append"
    """Keeps them."""
    OVERWRITE = "overwrite"
    """Deletes them."""
    ERROR = "error"
    """Refuses the table."""

    @classmethod
    def of(cls, mode: TableMode | str) -> TableMode:
        try:
            return cls(mode)
        except ValueError:
            known = ", ".join(repr(each.value) for each in cls)
            raise ConfigError("mode", mode, f"give one of {known}") from None


class TableSink(FileSink, DriverSide):
    """Appends to a table of the catalog, or to a directory of Parquet files.

    Tables that are not directories of Parquet files are refused. A missing table is created when
    the job starts.
    """

    def __init__(
        self,
        table: CatalogTable | str,
        type_info: TypeInformation | None,
        *,
        mode: TableMode = TableMode.APPEND,
        partition_by: Sequence[str] = (),
        rolling: RollingPolicy | None = None,
    ) -> None:
        self.collector = f"table-{uuid.uuid4().hex}"
        self._columns = SparkColumns(type_info, "a table")
        self._catalog = table if isinstance(table, CatalogTable) else None
        self._mode = mode
        self._rolling = rolling or RollingPolicy()
        self._partition_by = tuple(partition_by)
        self._known: set[str] = set()
        self._refreshed_at: float | None = None
        if isinstance(table, CatalogTable):
            found = table.found() if table.is_within_reach else None
            self._write_below("" if found is None else self._location(table, found))
        else:
            self._write_below(table)
            if mode is not TableMode.OVERWRITE:
                schema = self._columns.encoding(without=self._partition_by).schema
                check_directory(table, schema, self._partition_by)

    def _write_below(self, directory: str) -> None:
        self._check_partitions()
        super().__init__(
            directory,
            self._columns.encoding(without=self._partition_by),
            rolling=self._rolling,
            buckets=PartitionAssigner(self._partition_by) if self._partition_by else None,
            is_table=self._catalog is None and not self._partition_by,
        )
        refuses = self._mode is TableMode.ERROR
        self._settings = replace(
            self._settings,
            existing=ExistingFiles.REFUSE if refuses else ExistingFiles.REPLACE,
            finds_any_name=self._mode is not TableMode.APPEND,
        )

    def _location(self, table: CatalogTable, found: FoundTable) -> str:
        """The location of a table that fits the stream."""
        self._partition_by = self._same_partitions(found.partition_columns)
        columns, wanted = described(found.schema), self._columns.described
        # Parquet columns have names, so their order may differ.
        if sorted(columns) != sorted(wanted):
            problem = "its columns are not those of the stream: map() to them, or alter the table"
            raise TableMismatch(table.name, problem, columns, wanted)
        return found.location

    def _same_partitions(self, found: tuple[str, ...]) -> tuple[str, ...]:
        if self._partition_by not in ((), found):
            raise ConfigError(
                "partition_by",
                list(self._partition_by),
                f"the table is partitioned by {list(found)}: omit it, or specify another table",
            )
        return found

    def _check_partitions(self) -> None:
        fields = {field.name: field.dataType for field in self._columns.schema.fields}
        for name in self._partition_by:
            if name not in fields:
                raise MissingField(name, tuple(fields), "partition_by")
            if not isinstance(fields[name], _PARTITION_TYPES):
                raise GraphError(
                    f"a table cannot be partitioned by {name!r}, which is a "
                    f"{fields[name].simpleString()}: use text, integers, booleans or "
                    "dates"
                )
        if len(self._partition_by) == len(fields):
            raise GraphError("a table needs at least one column that it is not partitioned by")

    # --- in the driver --------------------------------------------------------------------------

    def before_start(self) -> None:
        if self._catalog is None:
            return
        found = self._catalog.created(self._columns.schema, self._partition_by)
        self._write_below(self._location(self._catalog, found))
        if self._partition_by:
            self._catalog.recover_partitions()  # those of a driver that died before adding them

    def delivered(self, record: Any) -> None:
        if self._catalog is None:
            return
        new = set(record) - self._known
        if self._partition_by and new:
            with self._catalog.failures_logged():
                self._catalog.add_partitions(sorted(new))
                self._known |= new
        if self._refreshed_at is None or time.monotonic() > self._refreshed_at + _REFRESH_SECONDS:
            self._refresh()

    def ended(self) -> None:
        if self._catalog is not None and self._refreshed_at is not None:
            self._refresh()

    def _refresh(self) -> None:
        assert self._catalog is not None
        with self._catalog.failures_logged():
            self._catalog.refresh()
        self._refreshed_at = time.monotonic()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_catalog": None}

    # --- in the slots ---------------------------------------------------------------------------

    def create_writer(self, context: WriterContext) -> CommittingWriter:
        # Other jobs append to the same directory: the names identify the files of this sink.
        prefix = f"part-{context.job_id}-{context.operator_id[:8]}"
        settings = replace(self._settings, names=OutputFileConfig(part_prefix=prefix))
        return PartWriter(self._directory, context, settings)

    def create_committer(self, context: WriterContext) -> Committer:
        return _TableCommitter(self._directory, self.collector, context)


class _TableCommitter(PartCommitter):
    """Tells the driver which partitions have new files."""

    def __init__(self, directory: str, collector: str, context: WriterContext) -> None:
        super().__init__(directory, context.permit)
        self._collector = collector
        self._deliver = context.deliver

    def commit(self, committables: Sequence[Any]) -> None:
        super().commit(committables)
        if self._deliver is not None:
            partitions = {str(PurePosixPath(file.final).parent) for file in committables}
            self._deliver(self._collector, Batch.of_records([tuple(sorted(partitions))]))
