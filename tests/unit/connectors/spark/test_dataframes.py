from datetime import UTC, date, datetime

import pytest

from tests.unit.connectors.reading import read_all, reader_of
from tidegate.core.errors import GraphError
from tidegate.operators.endpoints.operators import SinkOperator
from tidegate.testing.harness import OperatorHarness
from tidegate.types.row import Row
from tidegate.types.typeinfo import Types

pytestmark = pytest.mark.spark


def test_the_rows_of_a_dataframe_are_read_from_files_with_positions(spark, tmp_path):
    from tidegate.connectors.spark.dataframes import from_dataframe

    frame = spark.range(0, 1000, numPartitions=3).selectExpr("id", "concat('n', id) as name")
    source = from_dataframe(frame, str(tmp_path))
    reader = reader_of(source)
    before = reader.poll(100).batch.records
    assert before[0] == Row(id=0, name="n0")
    rest = read_all(reader_of(source, splits=reader.snapshot()))
    assert sorted(row.id for row in before + rest) == list(range(1000))


def test_a_streaming_dataframe_is_refused(spark, tmp_path):
    from tidegate.connectors.spark.dataframes import from_dataframe

    with pytest.raises(GraphError, match="this one is streaming"):
        from_dataframe(spark.readStream.format("rate").load(), str(tmp_path))


def test_what_a_job_wrote_is_a_dataframe(spark, tmp_path):
    from tidegate.connectors.spark.dataframes import DataFrameSink

    kind = Types.ROW_NAMED(
        ["name", "size", "day", "at", "tags"],
        [
            Types.STRING(),
            Types.BIG_INT(),
            Types.SQL_DATE(),
            Types.INSTANT(),
            Types.LIST(Types.DOUBLE()),
        ],
    )
    from tidegate.types.instant import Instant

    record = Row(name="a", size=7, day=date(2024, 2, 29), at=Instant(1, 0), tags=[1.5])
    sink = DataFrameSink(str(tmp_path / "out"), kind)
    for subtask in (0, 1):
        placed = {"subtask": subtask, "parallelism": 2, "is_checkpointed": False}
        with OperatorHarness(SinkOperator(sink), **placed) as harness:
            if subtask == 1:
                harness.process([record], type_info=kind)
            harness.finish()
    (row,) = sink.read(spark).collect()
    assert (row.name, int(row.size), row.day, row.tags) == ("a", 7, date(2024, 2, 29), [1.5])
    assert row.at.astimezone(UTC) == datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)


def test_a_dataframe_needs_the_type_of_the_records(tmp_path):
    from tidegate.connectors.spark.dataframes import DataFrameSink

    with pytest.raises(GraphError, match="set output_type on the last operator"):
        DataFrameSink(str(tmp_path), None)
