import subprocess
import sys

import pytest

from tidegate.datastream.execution.worker_daemon import unpacked

COMMAND = ["-m", "tidegate.datastream.execution.worker_daemon", "pyspark.worker"]


@pytest.mark.slow
def test_spark_reads_nothing_but_the_port_of_its_daemon():
    """And ends it by the end of its input."""
    daemon = subprocess.run(
        [sys.executable, *COMMAND], input=b"", capture_output=True, timeout=120, check=False
    )
    assert daemon.stderr == b""
    assert 0 < int.from_bytes(daemon.stdout, "big") < 1 << 16


def test_the_archive_of_pyspark_is_not_read_where_it_is_installed_unpacked():
    rest = ["/env/site-packages/pyspark/python/lib/py4j-src.zip", "/job", "/env/site-packages"]
    assert unpacked(["/env/site-packages/pyspark/python/lib/pyspark.zip", *rest]) == rest


@pytest.mark.parametrize("home", ["/opt/spark", "/pyspark", ".", ""])
def test_archives_of_a_spark_elsewhere_are_read(home):
    path = [f"{home}/python/lib/pyspark.zip", f"{home}/python/lib/py4j-src.zip", "/job"]
    assert unpacked(path) == path
