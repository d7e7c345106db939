"""Counts the schedules until a planted bug is found."""

from __future__ import annotations

import json
import math
import multiprocessing
import random
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from statistics import median

from tests.sim.bugs.planting import BUGS, Bug
from tests.sim.clockwork import Wrong
from tests.sim.plans import Plan
from tests.sim.world import World
from tidegate.core.errors import TidegateError

MOST_SECONDS = 240.0


def seeds_to_find(found: Bug, seeds: Iterator[int], limit: int, deadline: float) -> float:
    """How many schedules until one fails; infinite: more than the limit."""
    with found.planted():
        for count, seed in enumerate(seeds, 1):
            if count > limit or time.process_time() > deadline:
                return math.inf
            try:
                World(Plan.draw(seed, found.wish)).run()
            except (TidegateError, Wrong) as error:
                if "TypeError" in str(error) or "AttributeError" in str(error):
                    raise AssertionError(f"{found.name} does not fit the code: {error}") from None
                return count
    return math.inf


def find(found: Bug, rounds: int, first: int, limit: int = 400) -> list[float]:
    """Search from several starting seeds."""
    rnd = random.Random(f"{first}/{found.name}")
    deadline = time.process_time() + MOST_SECONDS

    def seeds() -> Iterator[int]:
        place = rnd.randrange(10**6)
        while True:
            yield place
            place += 1

    return [seeds_to_find(found, seeds(), limit, deadline) for _ in range(rounds)]


def find_all(rounds: int, first: int, report: Path | None, jobs: int) -> bool:
    taken = {}
    with multiprocessing.get_context("fork").Pool(jobs) as pool:
        search = partial(_searched, rounds=rounds, first=first)
        for name, found, seconds in pool.imap(search, BUGS):
            taken[name] = found
            print(f"{median(found):6} seeds {seconds:6.1f} s  {name}  {found}", flush=True)
    number = sum(median(each) < math.inf for each in taken.values())
    print(f"{number} of {len(BUGS)} are found")
    if report is not None:
        report.write_text(json.dumps({k: median(v) for k, v in taken.items()}, indent=1) + "\n")
    return number == len(BUGS)


def _searched(name: str, rounds: int, first: int) -> tuple[str, list[float], float]:
    started = time.perf_counter()
    found = sorted(find(BUGS[name], rounds, first))
    return name, found, time.perf_counter() - started
