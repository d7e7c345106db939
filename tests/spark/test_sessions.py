"""What a job starts of Spark."""

import textwrap

import pytest

from tests.spark.scripts import output_of

pytestmark = [pytest.mark.spark, pytest.mark.slow]

SCRIPT = """
from pyspark import SparkContext
from pyspark.sql import SparkSession

from tidegate import StreamExecutionEnvironment, Types

with StreamExecutionEnvironment.get_execution_environment() as env:
    numbers = env.set_parallelism(1).from_collection([1, 2], Types.LONG())
    print(sorted(numbers.execute_and_collect()))
    print(SparkSession._instantiatedSession)
    print(numbers.to_dataframe().count())
    print(SparkSession._instantiatedSession.sparkContext is SparkContext._active_spark_context)
print(SparkSession._instantiatedSession, SparkContext._active_spark_context)
"""


def test_a_session_of_sql_is_created_when_a_program_needs_one(tmp_path):
    """Spark takes seconds to create it, and a restarted driver would wait for it."""
    script = tmp_path / "script.py"
    script.write_text(textwrap.dedent(SCRIPT))
    told = output_of(script, "local", tmp_path).splitlines()
    assert told == ["[1, 2]", "None", "2", "True", "None None"]
