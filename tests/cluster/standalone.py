"""A real standalone Spark cluster on loopback, from the installed PySpark."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyspark

from tidegate.prerequisites.java import require_java

_HOST = "127.0.0.1"


def environment() -> dict[str, str]:
    return {
        **os.environ,
        "JAVA_HOME": str(require_java().home),
        "SPARK_HOME": str(Path(pyspark.__file__).parent),
        "SPARK_LOCAL_IP": _HOST,
        "PYSPARK_PYTHON": sys.executable,
    }


@contextmanager
def standalone_cluster(directory: Path, workers: int, cores: int) -> Iterator[str]:
    """Start a master and workers; yields the master's address."""
    port, processes = _free_port(), []
    try:
        processes.append(_start("master.Master", directory / "master.log", "--port", str(port)))
        _wait_for_port(port)
        processes.extend(
            _start(
                "worker.Worker",
                directory / f"worker-{i}.log",
                *("-c", str(cores), "-m", "2g", "-d", str(directory / f"work-{i}")),
                f"spark://{_HOST}:{port}",
            )
            for i in range(workers)
        )
        yield f"spark://{_HOST}:{port}"
    finally:
        for process in reversed(processes):
            process.terminate()
        for process in processes:
            process.wait(120)


def run_program(program: Path, *arguments: str, timeout: float = 240) -> str:
    """Run a driver program as a user would, and return what it prints."""
    done = subprocess.run(
        [sys.executable, str(program), *arguments],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def _start(role: str, log: Path, *arguments: str) -> subprocess.Popen[bytes]:
    spark_class = Path(pyspark.__file__).parent / "bin" / "spark-class"
    command = [str(spark_class), f"org.apache.spark.deploy.{role}"]
    command += ["--host", _HOST, "--webui-port", "0", *arguments]
    with log.open("wb") as output:
        return subprocess.Popen(command, env=environment(), stdout=output, stderr=subprocess.STDOUT)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((_HOST, 0))
        return int(probe.getsockname()[1])


def _wait_for_port(port: int, seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while True:
        try:
            socket.create_connection((_HOST, port), 1).close()
            return
        except OSError:
            assert time.monotonic() < deadline, f"nobody listens on port {port}"
            time.sleep(0.1)
