"""Differences between the supported versions of Spark.

| since | what is used where it exists | before |
|---|---|---|
| 4.0 | a DataFrame created from an Arrow table | a task reads the table from its closure |
| 4.0 | a description of a table as JSON | the rows of the description are read |
| 4.1 | `TimeType` | a time of day has no column in Spark |
| 4.1 | `DataFrame.repartitionById` | a partition may get the rows of several ids, or none |
| 4.3 | the streaming shuffle, checked by `exchange/choice.py` | steps are Spark jobs |

`to_arrow_schema` takes the time zone of its timestamps since 4.2; before, it is UTC.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterator
from typing import Any, Final

import pyarrow as pa
import pyspark
from pyspark.sql import DataFrame, SparkSession, types
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema

TIME_TYPE: Final[type[types.DataType] | None] = getattr(types, "TimeType", None)
_HAS_ARROW_TABLES: Final = int(pyspark.__version__.partition(".")[0]) >= 4


def arrow_schema_of(schema: types.StructType) -> pa.Schema:
    """The Arrow schema in which rows of this schema reach Python; timestamps are in UTC."""
    zone = {"timezone": "UTC"} if _takes("timezone") else {}
    return to_arrow_schema(schema, **zone)  # type: ignore[arg-type]


def _takes(argument: str) -> bool:
    return argument in inspect.signature(to_arrow_schema).parameters


def frame_of(spark: SparkSession, table: pa.Table) -> DataFrame:
    """A small table as a DataFrame; its types must be those that Spark accepts from Python."""
    if _HAS_ARROW_TABLES:
        return spark.createDataFrame(table)

    def read(_: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from table.to_batches()

    return spark.range(0, 1, 1, 1).mapInArrow(read, from_arrow_schema(table.schema))


def partitioned_by_id(frame: DataFrame, number: int, column: str) -> DataFrame:
    """Put all rows of an id, from 0 to `number - 1`, into the same partition."""
    if hasattr(frame, "repartitionById"):
        return frame.repartitionById(number, column)
    return frame.repartition(number, column)


def described_table(spark: SparkSession, quoted_name: str) -> dict[str, Any]:
    """The catalog's description of a table: type, provider, location, partitions, buckets."""
    description = f"DESCRIBE TABLE EXTENDED {quoted_name}"
    if int(spark.version.partition(".")[0]) >= 4:
        (row,) = spark.sql(f"{description} AS JSON").collect()
        facts: dict[str, Any] = json.loads(row[0])
        return facts
    return _facts_of([(row[0], row[1]) for row in spark.sql(description).collect()])


def _facts_of(rows: list[tuple[str, str]]) -> dict[str, Any]:
    """Parse the rows of a description: columns, then sections that begin with a `# name`."""
    sections: dict[str, list[tuple[str, str]]] = {"": []}
    section = sections[""]
    for name, value in rows:
        if name.startswith("# ") and name != "# col_name":
            section = sections.setdefault(name, [])
        elif name and name != "# col_name":
            section.append((name, value))
    details = dict(sections.get("# Detailed Table Information", ()))
    return {
        "type": details.get("Type"),
        "provider": details.get("Provider"),
        "location": details.get("Location"),
        "num_buckets": details.get("Num Buckets"),
        "partition_columns": [name for name, _ in sections.get("# Partition Information", ())],
    }
