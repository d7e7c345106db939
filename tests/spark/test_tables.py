"""Spark tables as sinks: Spark reads every row once, whatever failed on its way."""

import uuid
from datetime import date

import pytest
from pyspark.sql import Row as SparkRow

from tests.api.test_exactly_once_sinks import LAST, FailsBehindCheckpoints, environment
from tidegate.common import Row, Types
from tidegate.core.errors import ConfigError, GraphError, MissingField, TableMismatch
from tidegate.datastream import StreamExecutionEnvironment
from tidegate.testing.environments import mini_environment

pytestmark = [pytest.mark.spark, pytest.mark.slow]

SALE = Types.ROW_NAMED(["id", "country"], [Types.LONG(), Types.STRING()])


@pytest.fixture
def schema(spark, tmp_path):
    """An empty schema of its own, whose tables lie in the test's directory."""
    name = f"test_{uuid.uuid4().hex}"
    spark.sql(f"CREATE SCHEMA {name} LOCATION '{tmp_path.as_uri()}/tables'")
    yield name
    spark.sql(f"DROP SCHEMA {name} CASCADE")


def sale(number):
    return Row(id=number, country="de" if number % 3 else "it")


def sales(env, first, last):
    return env.from_sequence(first, last).map(sale, SALE)


def append(table, first, last, **settings):
    env = mini_environment(parallelism=2)
    sales(env, first, last).sink_to_table(table, **settings)
    env.execute()


def ids(frame):
    return sorted(row.id for row in frame.collect())


@pytest.mark.parametrize("partition_by", [(), ("country",)], ids=["plain", "partitioned"])
def test_each_row_is_in_the_table_once_though_the_job_fails(spark, schema, tmp_path, partition_by):
    table = f"{schema}.sales"
    env = environment(2)
    env.enable_checkpointing("20 ms")
    numbers = env.from_sequence(1, LAST).map(FailsBehindCheckpoints()).rebalance()
    numbers.map(sale, SALE).sink_to_table(table, partition_by=partition_by)
    env.execute()
    assert ids(spark.table(table)) == list(range(1, LAST + 1))
    assert ids(spark.table(table).where("country = 'it'")) == list(range(3, LAST + 1, 3))
    assert not [path.name for path in (tmp_path / "tables").rglob(".part-*")]


def test_rows_are_appended_to_those_that_spark_and_other_jobs_wrote(spark, schema):
    table = f"{schema}.sales"
    spark.createDataFrame([("de", 1)], "country string, id long").write.saveAsTable(table)
    append(table, 2, 4)
    append(table, 5, 6)
    assert ids(spark.table(table)) == [1, 2, 3, 4, 5, 6]
    append(table, 7, 7, mode="overwrite")
    assert ids(spark.table(table)) == [7]
    with pytest.raises(ConfigError, match=r'it contains files of .*mode="overwrite"'):
        append(table, 8, 8, mode="error")
    assert ids(spark.table(table)) == [7]


def test_a_partitioned_table_keeps_its_partitions_and_the_catalog_learns_of_new_ones(spark, schema):
    table = f"{schema}.visits"
    spark.sql(
        f"CREATE TABLE {table} (day DATE, page STRING, n INT) USING parquet "
        "PARTITIONED BY (day, page)"
    )
    assert spark.table(table).count() == 0
    rows = [
        (1, "a/b=c", date(2024, 2, 29)),
        (2, "it's \\ 50%", date(2024, 2, 29)),
        (3, None, None),
        (4, "ü", date(2024, 3, 1)),
    ]
    env = mini_environment()
    kind = Types.ROW_NAMED(["n", "page", "day"], [Types.INT(), Types.STRING(), Types.SQL_DATE()])
    env.from_collection([Row(*row) for row in rows], kind).sink_to_table(table)
    env.execute()
    found = spark.table(table).orderBy("n").select("n", "page", "day")
    assert [tuple(row) for row in found.collect()] == rows
    assert spark.table(table).where("day = '2024-02-29'").count() == 2
    assert spark.sql(f"SHOW PARTITIONS {table}").count() == 4


def test_a_table_of_all_types_is_created_as_the_stream_says(spark, schema):
    table = f"{schema}.things"
    kind = Types.ROW_NAMED(
        ["big", "tags", "at", "inner"],
        [
            Types.BIG_INT(),
            Types.LIST(Types.STRING()),
            Types.SQL_TIMESTAMP(),
            Types.ROW_NAMED(["x"], [Types.DOUBLE()]),
        ],
    )
    env = mini_environment()
    env.from_collection([], kind).sink_to_table(table)
    env.execute()
    assert spark.table(table).count() == 0
    columns = [(field.name, field.dataType.simpleString()) for field in spark.table(table).schema]
    assert columns == [
        ("big", "decimal(38,0)"),
        ("tags", "array<string>"),
        ("at", "timestamp_ntz"),
        ("inner", "struct<x:double>"),
    ]


def test_a_table_of_other_columns_is_refused_with_both_lists(spark, schema):
    spark.sql(f"CREATE TABLE {schema}.t (id INT, country STRING) USING parquet")
    with pytest.raises(TableMismatch) as caught:
        append(f"{schema}.t", 1, 2)
    problem = "its columns are not those of the stream: map() to them, or alter the table"
    assert str(caught.value).splitlines() == [
        f"table {schema}.t: {problem}",
        "columns found: id int, country string",
        "columns wanted: id bigint, country string",
    ]


@pytest.mark.parametrize(
    ("statement", "problem"),
    [
        ("CREATE TABLE {} (id LONG, country STRING) USING csv", "it is a csv table"),
        ("CREATE VIEW {} AS SELECT 1L AS id, '' AS country", "it is a view"),
        (
            "CREATE TABLE {} (id LONG) USING parquet CLUSTERED BY (id) INTO 2 BUCKETS",
            "it is bucketed",
        ),
    ],
)
def test_tables_that_are_no_directory_of_parquet_files_are_refused(
    spark, schema, statement, problem
):
    spark.sql(statement.format(f"{schema}.t"))
    with pytest.raises(TableMismatch, match=problem):
        append(f"{schema}.t", 1, 2)


def test_what_cannot_be_a_table_is_refused_when_the_program_is_built(spark, schema, tmp_path):
    env = mini_environment()
    numbers = env.from_sequence(1, 2)
    with pytest.raises(GraphError, match="a table needs the type of the records"):
        numbers.map(str).sink_to_table("t")
    with pytest.raises(ConfigError, match="give the name of a table"):
        numbers.sink_to_table("drop table x")
    with pytest.raises(ConfigError, match="give one of 'append', 'overwrite', 'error'"):
        numbers.sink_to_table("t", mode="merge")
    with pytest.raises(MissingField, match="no field 'town'"):
        sales(env, 1, 2).sink_to_table(f"{tmp_path}/t", partition_by="town")
    with pytest.raises(GraphError, match="one column that it is not partitioned by"):
        numbers.sink_to_table(f"{tmp_path}/t", partition_by="value")
    spark.sql(f"CREATE TABLE {schema}.t (id LONG, country STRING) USING parquet")
    with pytest.raises(ConfigError, match=r"partitioned by \[\]"):
        sales(env, 1, 2).sink_to_table(f"{schema}.t", partition_by="country")
    assert not spark.catalog.tableExists("t")


def test_a_directory_is_a_table_too(spark, tmp_path):
    path = f"{tmp_path}/sales"
    append(path, 1, 4, partition_by="country")
    append(path, 5, 6, partition_by="country")
    frame = spark.read.parquet(path)
    assert ids(frame) == [1, 2, 3, 4, 5, 6]
    assert frame.where("id = 3").collect() == [SparkRow(id=3, country="it")]
    with pytest.raises(TableMismatch, match="has other columns than the stream"):
        append(path, 7, 8)
    env = mini_environment()
    env.from_collection([], SALE).sink_to_table(f"{tmp_path}/none")
    env.execute()
    assert spark.read.parquet(f"{tmp_path}/none").columns == ["id", "country"]


def test_on_spark_the_rows_of_slots_are_in_the_table_when_the_job_has_finished(spark, schema):
    env = StreamExecutionEnvironment.get_execution_environment(spark=spark)
    env.set_parallelism(2).enable_checkpointing("200 ms")
    sales(env, 1, 1000).sink_to_table(f"{schema}.sales", partition_by="country")
    env.execute()
    assert ids(spark.table(f"{schema}.sales")) == list(range(1, 1001))
