"""A real job, killed again and again: slots and driver, wherever it happens to be."""

import os
import random
import re
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.spark.chaos_program import KEYS, PARALLELISM
from tests.spark.scripts import end, environment

pytestmark = [pytest.mark.soak, pytest.mark.timeout(1500)]
PROGRAM = Path(__file__).with_name("chaos_program.py")
SLOT = re.compile(r"slot (\d+)")
COMPLETED = re.compile(r"Completed checkpoint (\d+)")


class Chaos:
    """The program, started anew whenever its driver was killed."""

    def __init__(self, directory, backend, rnd):
        self.directory, self.backend, self.rnd = directory, backend, rnd
        self.kills = {"slot": 0, "driver": 0}
        self.restored = 0
        self.process = self._start()

    def _start(self):
        return subprocess.Popen(
            [sys.executable, str(PROGRAM), str(self.directory), self.backend],
            env=environment(self.directory),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def run(self, kills):
        """Kill after a random number of things that happened, though not before a checkpoint."""
        slots, is_saved, patience = set(), False, self._patience()
        said = []
        while line := self.process.stderr.readline():
            said.append(line)
            self.restored += "Restoring job" in line
            if found := SLOT.match(line):
                slots.add(int(found[1]))
            is_saved |= COMPLETED.match(line) is not None
            patience -= 1
            if sum(self.kills.values()) < kills and is_saved and patience <= 0 and slots:
                self._kill(slots)
                slots, is_saved, patience = set(), False, self._patience()
            elif sum(self.kills.values()) == kills and is_saved:
                (self.directory / "limit").write_text("100000")
        assert self.process.wait(60) == 0, "".join(said[-40:])

    def _patience(self):
        return self.rnd.randrange(1, 20)

    def _kill(self, slots):
        if self.rnd.random() < 0.15:
            self.kills["driver"] += 1
            self._end_driver()
            self.process = self._start()
        else:
            self.kills["slot"] += 1
            victim = self.rnd.choice(sorted(slots))
            try:
                os.kill(victim, signal.SIGKILL)
            except ProcessLookupError:
                self.kills["slot"] -= 1

    def _end_driver(self):
        family = psutil.Process(self.process.pid).children(recursive=True)
        self.process.kill()
        self.process.wait(30)
        psutil.wait_procs(family, timeout=30)

    def results(self):
        """The highest total of every key that any attempt has seen."""
        highest = {}
        for file in self.directory.glob("results-*"):
            if file.suffix != ".new":
                for line in file.read_text().splitlines():
                    key, total = map(int, line.split())
                    highest[key] = max(total, highest.get(key, 0))
        return highest


@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
def test_whatever_is_killed_every_record_counts_once(backend, tmp_path):
    seed = random.randrange(10**6)
    print(f"seed {seed}")
    chaos = Chaos(tmp_path, backend, random.Random(seed))
    try:
        chaos.run(kills=25)
    finally:
        end(chaos.process)
    limit = int((tmp_path / "limit").read_text())
    expected = {key: PARALLELISM * sum(range(key, limit, KEYS)) for key in range(KEYS)}
    assert chaos.results() == expected
    assert sum(chaos.kills.values()) == 25
    assert chaos.restored >= 20
