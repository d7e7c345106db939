"""Programs as users start them: scripts in processes of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import psutil

ROOT = Path(__file__).parents[2]
PATIENCE = 240.0
"""Seconds after which a process that starts Spark is taken for hung."""

START = """
import os, sys
from tests.programs import *
from tidegate.graph.logical import Upstream
from tidegate.graph.partitioning import Broadcast, Rebalance

def start(graph, values=None):
    if sys.argv[-1] == "mini":
        from tidegate.testing.mini_cluster import run
        return run(graph, settings_of(values))
    from pyspark.sql import SparkSession
    from tidegate.driver.launch import submit
    spark = (
        SparkSession.builder.master("local[4]")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.python.task.killTimeout", "100ms")
        .config("spark.python.unix.domain.socket.enabled", "true")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("OFF")
    return submit(graph, spark.sparkContext, settings_of(values))
"""
"""What the scripts begin with: `start` runs a job on the cluster named by the last argument."""


def environment(temporary: Path) -> dict[str, str]:
    return {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "PYTHONUNBUFFERED": "1",
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "TMPDIR": str(temporary),
    }


def start_script(script: Path, cluster: str, temporary: Path) -> subprocess.Popen[str]:
    """A process group of its own, so that a signal to it is a terminal's Ctrl-C."""
    return subprocess.Popen(
        [sys.executable, str(script), cluster],
        cwd=script.parent,
        env=environment(temporary),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def output_of(script: Path, cluster: str, temporary: Path) -> str:
    """What a script printed; it must end well."""
    with start_script(script, cluster, temporary) as process:
        try:
            out, err = process.communicate(timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            end(process)
            raise
    assert process.returncode == 0, err
    return out


def family_of(process: subprocess.Popen[str]) -> list[psutil.Process]:
    """The process and everything that descends from it."""
    parent = psutil.Process(process.pid)
    return [parent, *parent.children(recursive=True)]


def end(process: subprocess.Popen[str]) -> None:
    """Leave nothing of a script behind, whatever state it is in."""
    if process.poll() is None:
        for member in reversed(family_of(process)):
            try:
                member.kill()
            except psutil.NoSuchProcess:
                pass  # it went with its parent
        process.wait(120)
