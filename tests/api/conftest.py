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


@pytest.fixture(scope="module")
def spark_env():
    """Two subtasks, on a Spark of its own that is shared by the tests of a module."""
    with StreamExecutionEnvironment.get_execution_environment() as environment:
        yield environment.set_parallelism(2)
