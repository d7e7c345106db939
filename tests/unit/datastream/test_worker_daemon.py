import subprocess
import sys

COMMAND = ["-m", "tidegate.datastream.execution.worker_daemon", "pyspark.worker"]


def test_spark_reads_nothing_but_the_port_of_its_daemon():
    """And ends it by the end of its input."""
    daemon = subprocess.run(
        [sys.executable, *COMMAND], input=b"", capture_output=True, timeout=120, check=False
    )
    assert daemon.stderr == b""
    assert 0 < int.from_bytes(daemon.stdout, "big") < 1 << 16
