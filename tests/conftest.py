"""One Spark session for all tests of a worker that do not start their own."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

from tidegate.exchange.pipelined.requirements import session_settings


@pytest.fixture(scope="session")
def temporary() -> Iterator[Path]:
    """Where driver, slots and Spark put temporary files; short, for sockets have names too."""
    directory = Path(tempfile.mkdtemp(prefix="tg-"))
    directory.chmod(0o711)  # PostgreSQL runs as a user of its own
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
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    session = (
        SparkSession.builder.master("local[16]")
        .config("spark.default.parallelism", "4")
        .config(map=session_settings())
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.local.dir", str(temporary / "spark"))
        .config("spark.python.task.killTimeout", "100ms")
        .config("spark.python.unix.domain.socket.enabled", "true")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", "4")
        .config("spark.sql.warehouse.dir", str(temporary / "warehouse"))
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()
