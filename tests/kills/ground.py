"""The environment of one case: its directories, disk, topics, table, and input."""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
import time
from contextlib import suppress
from pathlib import Path

from tests.kills.cases import Case
from tests.kills.programs import SPLITS, TOTAL, Place
from tests.kills.servers import Servers
from tests.kills.source import write_number

_DISK = "size=48m"
_PAUSE_SECONDS = 0.05
_AT_ONCE = 15
"""Records of a split that are released at a time."""


class Ground:
    def __init__(self, case: Case, servers: Servers, directory: Path) -> None:
        self.place = Place(
            case.name, directory / case.name, servers.brokers, servers.database_of(case.name)
        )
        self._servers = servers
        self._reads_kafka = case.program.startswith("kafka")
        self._has_table = case.program.endswith("postgres")
        directory = self.place.directory
        shutil.rmtree(directory, ignore_errors=True)
        place = self.place
        for each in (place.slots, place.orders, place.lines, self.disk, self.savepoints):
            each.mkdir(parents=True)
        self.has_disk = _run("mount", "-t", "tmpfs", "-o", _DISK, "kills", str(self.disk))
        if self._reads_kafka:
            servers.create_topics(case.name)
            self._producer = servers.producer()
        if self._has_table:
            servers.create_database(case.name)
        if case.program == "files":
            for number in range(SPLITS):
                lines = "".join(f"{number},{position}\n" for position in range(TOTAL))
                (self.place.lines / f"{number}.txt").write_text(lines)
        self._released = 0
        self._limit = 0
        self._is_over = threading.Event()
        self._flow = threading.Thread(target=self._let_flow, daemon=True)
        self._flow.start()

    @property
    def disk(self) -> Path:
        return self.place.directory / "disk"

    @property
    def savepoints(self) -> Path:
        return self.place.directory / "savepoints"

    def let(self, share: float) -> None:
        """Release this share of the input gradually."""
        self._limit = min(TOTAL, round(share * TOTAL))

    def open(self) -> None:
        """Release all input at once."""
        self._limit = TOTAL
        self._is_over.set()
        self._flow.join()
        self._release(TOTAL)
        if self._reads_kafka:
            assert self._producer.flush(120) == 0

    def _let_flow(self) -> None:
        while not self._is_over.wait(_PAUSE_SECONDS):
            if self._released < self._limit:
                self._release(min(self._limit, self._released + _AT_ONCE))

    def _release(self, number: int) -> None:
        if self._reads_kafka:
            for position in range(self._released, number):
                for split in range(SPLITS):
                    value = f"{split},{position}"
                    self._producer.produce(self.place.name, value, partition=split)
            self._producer.poll(0)
        self._released = number
        write_number(self.place.released, number)

    def fill_disk(self, seconds: float) -> None:
        ballast = self.disk / "ballast"
        with suppress(OSError), ballast.open("wb", buffering=0) as file:
            while True:
                file.write(b"x" * (1 << 16))
        time.sleep(seconds)
        ballast.unlink()

    def leave(self, keep: bool) -> list[str]:
        """Clean up; returns what the job left behind. With `keep`, logs and checkpoints stay."""
        self._is_over.set()
        self._flow.join()
        left: list[str] = []
        if self._reads_kafka:
            self._servers.delete_topics(self.place.name)
        if self._has_table and (transactions := self._servers.drop_database(self.place.name)):
            left.append(f"{transactions} prepared transactions")
        if keep:
            kept = self.place.directory / "kept"
            shutil.copytree(self.disk, kept, ignore_dangling_symlinks=True)
        if self.has_disk:
            _run("umount", "-l", str(self.disk))
        if not keep:
            shutil.rmtree(self.place.directory, ignore_errors=True)
        return left


def _run(*command: str) -> bool:
    if os.geteuid() != 0:
        return False
    return subprocess.run(command, capture_output=True, check=False).returncode == 0
