import pyarrow as pa
import pytest
from pyarrow import parquet as pq

from tidegate.connectors.spark.table import TableMode, TableSink
from tidegate.core.errors import ConfigError
from tidegate.operators.endpoints.operators import SinkOperator
from tidegate.testing.harness import OperatorHarness
from tidegate.types.row import Row
from tidegate.types.typeinfo import Types

NUMBER = Types.ROW_NAMED(["n"], [Types.LONG()])


def write(directory, *numbers, **settings):
    """One attempt of a job that refuses a table with rows."""
    sink = SinkOperator(TableSink(str(directory), NUMBER, mode=TableMode.ERROR))
    with OperatorHarness(sink, is_checkpointed=False, **settings) as harness:
        harness.process([Row(n=number) for number in numbers], type_info=NUMBER)
        harness.finish()


def numbers_in(directory):
    return pq.read_table(directory)["n"].to_pylist()


@pytest.mark.parametrize("attempt", [1, 2])
def test_every_attempt_refuses_a_table_with_rows_and_keeps_them(tmp_path, attempt):
    pq.write_table(pa.table({"n": [1, 2]}), tmp_path / "precious.parquet")
    with pytest.raises(ConfigError, match=r"such as precious\.parquet"):
        write(tmp_path, 3, attempt=attempt)
    assert numbers_in(tmp_path) == [1, 2]


def test_a_later_attempt_replaces_the_rows_of_an_earlier_one(tmp_path):
    write(tmp_path, 1)
    write(tmp_path, 2, attempt=2)
    assert numbers_in(tmp_path) == [2]


def test_a_later_attempt_refuses_rows_that_others_have_added_and_keeps_all(tmp_path):
    write(tmp_path, 1)
    pq.write_table(pa.table({"n": [2]}), tmp_path / "precious.parquet")
    with pytest.raises(ConfigError, match=r"such as precious\.parquet"):
        write(tmp_path, 3, attempt=2)
    assert sorted(numbers_in(tmp_path)) == [1, 2]


def test_two_sinks_of_a_job_may_fill_a_table_that_was_empty(tmp_path):
    write(tmp_path, 1, uid="first")
    write(tmp_path, 2, uid="second")
    assert sorted(numbers_in(tmp_path)) == [1, 2]
