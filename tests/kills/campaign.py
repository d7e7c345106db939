"""Runs cases, several at once, while there is time."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path

from tests.kills import ledger
from tests.kills.cases import BLOCK, Case, draw
from tests.kills.job import EXACT, Outcome
from tests.kills.run import Run
from tests.kills.servers import Servers
from tests.kills.stage import Stage


class Campaign:
    def __init__(
        self,
        seed: int,
        home: Path,
        artifacts: Path,
        ledger_path: Path,
        commit: str,
        pumped: bool,
    ) -> None:
        self.kills, self.bad = 0, 0
        self._seed, self._home, self._artifacts = seed, home, artifacts
        self._ledger, self._commit, self._pumped = ledger_path, commit, pumped
        self._servers = Servers(artifacts / "kills-services")
        self._stage: Stage | None = None
        self._lock = threading.Lock()

    def play(self, done: Collection[int], minutes: float, at_once: int) -> None:
        """Run all cases that are not done yet, block by block."""
        deadline = time.monotonic() + 60 * minutes

        def play(number: int) -> None:
            if time.monotonic() < deadline:
                self._told(case := self._draw(number), self._play(case, is_traced=False))

        for block in count():
            numbers = [n for n in range(block * BLOCK, (block + 1) * BLOCK) if n not in done]
            if time.monotonic() > deadline:
                return
            with ThreadPoolExecutor(at_once) as pool:
                list(pool.map(play, numbers))

    def play_one(self, number: int) -> None:
        case = self._draw(number)
        self._tell(case, self._play(case, is_traced=True))

    def end(self) -> None:
        if self._stage is not None:
            self._stage.kill()
        self._servers.stop()

    def _draw(self, number: int) -> Case:
        return draw(self._seed, number, self._pumped)

    def _play(self, case: Case, is_traced: bool) -> Outcome:
        with self._lock:
            if self._stage is None or self._stage.kind != case.stage:
                if self._stage is not None:
                    self._stage.kill()
                self._stage = Stage(case.stage, self._home)
        return Run(case, self._stage, self._servers, self._home, is_traced).play()

    def _told(self, case: Case, outcome: Outcome) -> None:
        with self._lock:
            share = round(outcome.seconds / max(1, len(outcome.kills)), 2)
            ledger.append(
                self._ledger,
                [
                    ledger.Entry(
                        self._commit,
                        case.seed,
                        case.number,
                        case.program,
                        case.settings,
                        kill.fault,
                        outcome.outcome,
                        outcome.lost,
                        outcome.doubled,
                        share,
                        outcome.actions,
                        outcome.notes,
                    )
                    for kill in outcome.kills
                ],
            )
            self._tell(case, outcome)

    def _tell(self, case: Case, outcome: Outcome) -> None:
        self.kills += len(outcome.kills)
        took = f"{len(outcome.kills):3} kills in {outcome.seconds:5.1f} s"
        what = f"--seed {case.seed} --case {case.number} {case.program} {case.settings}"
        print(f"{outcome.outcome:6} {took}  {what}", flush=True)
        for note in outcome.notes:
            print(f"    {note[:300]}", flush=True)
        if outcome.outcome != EXACT:
            self.bad += 1
            kept = self._artifacts / "kills" / case.name
            shutil.rmtree(kept, ignore_errors=True)
            shutil.copytree(self._home / case.name, kept, ignore_dangling_symlinks=True)
            shutil.copy(self._home / "spark.log", kept)
            shutil.rmtree(self._home / case.name, ignore_errors=True)
