"""What a job may leave behind of itself."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from pyspark.sql import SparkSession

from tests.programs import wait_until


class Traces:
    """What jobs leave behind from now on: slot processes, sockets, directories."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._files_before: frozenset[Path] = frozenset()
        self._files_before = frozenset(self.files())

    def files(self) -> list[Path]:
        found = {*self._directory.glob("tidegate-*"), *self._directory.rglob("*.sock")}
        return sorted(found - self._files_before)

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
    """Nothing of the test's own jobs stays."""
    traces = Traces(temporary)
    yield traces
    wait_until(traces.are_gone)
