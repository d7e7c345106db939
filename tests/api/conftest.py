"""Programs that run on the real engine: most of them in this process, some on Spark."""

import pytest

from tests.disks import disk
from tidegate.datastream import StreamExecutionEnvironment
from tidegate.testing.environments import mini_environment

__all__ = ["disk", "env", "spark_env"]


@pytest.fixture
def env():
    """Two subtasks, no Spark."""
    return mini_environment(parallelism=2)


@pytest.fixture
def spark_env(spark):
    """Two subtasks, on Spark."""
    with StreamExecutionEnvironment.get_execution_environment() as environment:
        yield environment.set_parallelism(2)
