"""Tables in the catalog of a Spark session."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from tidegate.connectors.spark.table_partitions import values_of
from tidegate.core.errors import ConfigError, ExternalError, TableMismatch
from tidegate.types.spark_versions import described_table

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class FoundTable:
    """A table of Parquet files."""

    location: str
    """A path or URL that Arrow accepts."""
    schema: StructType
    partition_columns: tuple[str, ...]


class CatalogTable:
    """A table by name; used in the driver."""

    def __init__(
        self, name: str, session: Callable[[], SparkSession], *, is_within_reach: bool = True
    ) -> None:
        self.name = name
        self.is_within_reach = is_within_reach
        """Whether a session exists already; otherwise, one exists when the job starts."""
        self._session = session
        parts = name.split(".")
        if not all(part.isidentifier() for part in parts):
            raise ConfigError(
                "table",
                name,
                "give the name of a table, such as sales or shop.sales, or a path with a '/'",
            )
        self._quoted = ".".join(f"`{part}`" for part in parts)

    @property
    def _spark(self) -> SparkSession:
        return self._session()

    def found(self) -> FoundTable | None:
        """The table in the catalog; None if it does not exist.

        Raises:
            TableMismatch: it is not a table of Parquet files.
        """
        if not self._spark.catalog.tableExists(self.name):
            return None
        facts = described_table(self._spark, self._quoted)
        self._check_provider(facts)
        return FoundTable(
            location=arrow_location(facts["location"]),
            schema=self._spark.table(self.name).schema,
            partition_columns=tuple(facts.get("partition_columns", ())),
        )

    def _check_provider(self, facts: dict[str, object]) -> None:
        kind, provider = facts.get("type"), str(facts.get("provider")).lower()
        if kind == "VIEW":
            problem = "it is a view: specify the underlying table"
        elif provider != "parquet":
            problem = (
                f"it is a {provider} table, but rows can only be appended to parquet: create "
                "it USING parquet, or write to another table and copy from there with Spark"
            )
        elif facts.get("num_buckets"):
            problem = "it is bucketed: create it without CLUSTERED BY"
        else:
            return
        raise TableMismatch(self.name, problem, (), ())

    def created(self, schema: StructType, partition_by: Sequence[str]) -> FoundTable:
        """The table, created if it does not exist."""
        found = self.found()
        if found is not None:
            return found
        columns = self._spark.createDataFrame([], schema)._jdf.schema().toDDL()
        quoted = ", ".join(f"`{name}`" for name in partition_by)
        partitioned = f" PARTITIONED BY ({quoted})" if partition_by else ""
        try:
            self._spark.sql(
                f"CREATE TABLE IF NOT EXISTS {self._quoted} ({columns}) USING parquet{partitioned}"
            )
        except PySparkException as error:
            reason = str(error).partition("\n")[0]
            raise ExternalError(
                f"table {self.name} does not exist and cannot be created: {reason}"
            ) from None
        made = self.found()
        assert made is not None
        return made

    def recover_partitions(self) -> None:
        """Add all partitions in the table's location."""
        self._spark.sql(f"ALTER TABLE {self._quoted} RECOVER PARTITIONS")

    def add_partitions(self, directories: Sequence[str]) -> None:
        """Add partitions by directory, such as `country=de`, unless they exist."""
        specs = " ".join(f"PARTITION ({_spec(directory)})" for directory in directories)
        self._spark.sql(f"ALTER TABLE {self._quoted} ADD IF NOT EXISTS {specs}")

    def refresh(self) -> None:
        """Make this session list the table's files again."""
        self._spark.catalog.refreshTable(self.name)

    @contextmanager
    def failures_logged(self) -> Iterator[None]:
        """Log errors of the catalog: the rows are written, so they must not fail the job."""
        try:
            yield
        except Exception as error:
            _log.warning(
                "the catalog does not know new files of table %s: run MSCK REPAIR TABLE %s "
                "and REFRESH TABLE %s (%s)",
                *(self.name, self.name, self.name),
                str(error).partition("\n")[0],
            )


def _spec(directory: str) -> str:
    return ", ".join(
        f"`{name}`={'null' if value is None else _literal(value)}"
        for name, value in values_of(directory).items()
    )


def _literal(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def arrow_location(url: str) -> str:
    """Convert a Spark location to one that Arrow accepts."""
    parts = urlsplit(url)
    if parts.scheme == "file":
        return str(Path(unquote(parts.path)))
    if parts.scheme in ("s3a", "s3n"):
        return url.replace(parts.scheme, "s3", 1)
    return url
