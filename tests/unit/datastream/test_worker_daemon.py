import subprocess
import sys

import pytest

from tidegate.datastream.execution.worker_daemon import unpacked

COMMAND = ["-m", "tidegate.datastream.execution.worker_daemon", "pyspark.worker"]


def test_spark_reads_nothing_but_the_port_of_its_daemon():
    """And ends it by the end of its input."""
    daemon = subprocess.run(
        [sys.executable, *COMMAND], input=b"", capture_output=True, timeout=120, check=False
    )
    assert daemon.stderr == b""
    assert 0 < int.from_bytes(daemon.stdout, "big") < 1 << 16


def test_archives_of_spark_are_not_read_where_it_is_installed_unpacked():
    library = "/env/site-packages/pyspark/python/lib"
    archives = [f"{library}/pyspark.zip", f"{library}/py4j-src.zip"]
    assert unpacked([*archives, "/job", "/env/site-packages"]) == ["/job", "/env/site-packages"]


@pytest.mark.parametrize("home", ["/opt/spark", ".", ""])
def test_archives_of_a_spark_elsewhere_are_read(home):
    path = [f"{home}/python/lib/pyspark.zip", f"{home}/python/lib/py4j-src.zip", "/job"]
    assert unpacked(path) == path
