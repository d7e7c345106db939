import sys
from pathlib import Path

import pytest

from tidegate.prerequisites import Status
from tidegate.prerequisites.examination import (
    check_spark_connect,
    check_spark_home,
    check_worker_python,
)


@pytest.fixture
def spark_home(tmp_path):
    def install(version: str) -> Path:
        jars = tmp_path / version / "jars"
        jars.mkdir(parents=True)
        (jars / f"spark-core_2.13-{version}.jar").touch()
        return jars.parent

    return install


def test_a_spark_home_of_our_version_is_fine(spark_home):
    home = spark_home("4.3.1")
    check = check_spark_home({"SPARK_HOME": str(home)}, "4.3.0")
    assert (check.status, check.found) == (Status.OK, f"Spark 4.3.1 at {home}")


@pytest.mark.parametrize("version", ["3.5.1", "4.30.0"])
def test_a_spark_home_of_another_version_is_named(spark_home, version):
    home = spark_home(version)
    check = check_spark_home({"SPARK_HOME": str(home)}, "4.3.0")
    assert (check.status, check.found) == (Status.MISSING, f"Spark {version} at {home}")
    assert check.advice == "unset SPARK_HOME, or point it to a Spark 4.3"


def test_a_spark_home_without_spark_is_named(tmp_path):
    check = check_spark_home({"SPARK_HOME": str(tmp_path)})
    assert (check.status, check.found) == (Status.MISSING, f"no Spark at {tmp_path}")


def test_the_spark_of_this_environment_is_accepted():
    import pyspark

    home = Path(pyspark.__file__).parent
    assert check_spark_home({"SPARK_HOME": str(home)}).status is Status.OK


def test_spark_connect_is_refused():
    check = check_spark_connect({"SPARK_REMOTE": "sc://somewhere"})
    assert (check.status, check.found) == (Status.MISSING, "sc://somewhere")


def test_another_python_for_workers_is_a_warning():
    assert check_worker_python({"PYSPARK_PYTHON": "/usr/bin/other"}).status is Status.WARNING
    assert check_worker_python({"PYSPARK_PYTHON": sys.executable}).status is Status.OK


@pytest.mark.parametrize("check", [check_spark_home, check_spark_connect, check_worker_python])
def test_nothing_set_is_fine(check):
    assert check({}).status is Status.OK
