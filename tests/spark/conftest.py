"""One Spark session for all tests of this folder, and what a job may leave behind of itself."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from pyspark import SparkContext
from pyspark.sql import SparkSession

from tests.programs import wait_until


@pytest.fixture(scope="session")
def temporary() -> Iterator[Path]:
    """Where driver, slots and Spark put temporary files; short, for sockets have names too."""
    directory = Path(tempfile.mkdtemp(prefix="tg-"))
    before = tempfile.tempdir, os.environ.get("TMPDIR")
    tempfile.tempdir = os.environ["TMPDIR"] = str(directory)
    yield directory
    tempfile.tempdir = before[0]
    if before[1] is None:
        del os.environ["TMPDIR"]
    else:
        os.environ["TMPDIR"] = before[1]
    shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture(scope="session")
def spark(temporary: Path) -> Iterator[SparkSession]:
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    if SparkContext._active_spark_context is not None:
        SparkContext._active_spark_context.stop()  # that of another folder's tests
    session = (
        SparkSession.builder.master("local[4]")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.local.dir", str(temporary / "spark"))
        .config("spark.python.task.killTimeout", "100ms")
        .config("spark.python.unix.domain.socket.enabled", "true")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()


class Traces:
    """What jobs leave behind: slot processes, sockets, directories."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def files(self) -> list[Path]:
        found = [*self._directory.glob("tidegate-*"), *self._directory.rglob("*.sock")]
        return sorted(found)

    def slot_processes(self) -> list[psutil.Process]:
        """Children that listen for steps, or are a task of a slot."""
        slots = []
        for process in psutil.Process().children(recursive=True):
            try:
                connections = process.net_connections(kind="unix")
            except (psutil.NoSuchProcess, psutil.AccessDenied):
                continue
            if any(str(connection.laddr).endswith("steps.sock") for connection in connections):
                slots.append(process)
        return slots

    def are_gone(self) -> bool:
        return not self.files() and not self.slot_processes()


@pytest.fixture
def traces(spark: SparkSession, temporary: Path) -> Iterator[Traces]:
    """Nothing of any job is there before the test, and nothing of its own stays."""
    traces = Traces(temporary)
    assert traces.files() == []
    yield traces
    wait_until(traces.are_gone, 20)
