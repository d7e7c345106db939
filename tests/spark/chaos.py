"""Kills parts of the chaos program, again and again, and knows what must come out of it."""

from __future__ import annotations

import os
import random
import re
import signal
import subprocess
import sys
from pathlib import Path

import psutil

from tests.spark.chaos_program import KEYS, LIMIT, PARALLELISM
from tests.spark.scripts import environment

PROGRAM = Path(__file__).with_name("chaos_program.py")
COMPLETED = re.compile(r"Completed checkpoint (\d+)")


class Chaos:
    """The program, started anew whenever its driver was killed."""

    def __init__(self, directory: Path, backend: str, rnd: random.Random, master: str) -> None:
        self.kills: list[str] = []
        self.restored = 0
        self._directory = directory
        self._arguments = [str(directory), backend, master]
        self._rnd = rnd
        self.process = self._start()

    def _start(self) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, str(PROGRAM), *self._arguments],
            env={**environment(self._directory), "SPARK_LOCAL_IP": "127.0.0.1"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def run(self, victims: list[str]) -> None:
        """Kill one victim after the other, each a random number of events after a checkpoint."""
        said: list[str] = []
        is_saved, patience = False, self._patience()
        while line := self._said():
            said.append(line)
            self.restored += "Restoring job" in line
            is_saved |= COMPLETED.match(line) is not None
            patience -= 1
            if not is_saved or patience > 0:
                continue
            if len(self.kills) == len(victims):
                (self._directory / "end").touch()
            elif self._kill(victims[len(self.kills)]):
                self.kills.append(victims[len(self.kills)])
                is_saved, patience = False, self._patience()
        assert self.process.wait(120) == 0, "".join(said[-40:])

    def _said(self) -> str:
        assert self.process.stderr is not None
        return self.process.stderr.readline()

    def _patience(self) -> int:
        return self._rnd.randrange(1, 20)

    def _kill(self, victim: str) -> bool:
        if victim == "driver":
            family = psutil.Process(self.process.pid).children(recursive=True)
            self.process.kill()
            self.process.wait(120)
            psutil.wait_procs(family, timeout=120)
            self.process = self._start()
            return True
        slot = self._rnd.randrange(PARALLELISM)
        worker, executor = (self._directory / f"slot-{slot}").read_text().split()
        try:
            os.kill(int(executor if victim == "executor" else worker), signal.SIGKILL)
        except ProcessLookupError:
            return False
        return True

    def results(self) -> dict[int, int]:
        """The highest total of every key that any attempt has seen."""
        highest: dict[int, int] = {}
        for file in self._directory.glob("results-*"):
            for line in file.read_text().splitlines():
                key, total = map(int, line.split())
                highest[key] = max(total, highest.get(key, 0))
        return highest

    @staticmethod
    def expected() -> dict[int, int]:
        return {key: PARALLELISM * sum(range(key, LIMIT, KEYS)) for key in range(KEYS)}
