"""``python -m tests.sim --seed 7`` replays one schedule; ``--seeds 1000`` runs many.

With ``--bug`` it does so for a planted bug, with the faults that are used to find it.

The same seed gives the same schedule, event by event, on every machine.
"""

from __future__ import annotations

import argparse
import gc
import json
import logging
import multiprocessing
import os
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

from tests.sim.clockwork import Wrong
from tests.sim.pickles import hasten
from tests.sim.plans import ANY, Fault, Plan, Wish
from tests.sim.report import Seen, contradictions, never_seen
from tests.sim.world import World


def outcome_of(plan: Plan) -> tuple[str | None, World]:
    """What is wrong with a schedule, if anything."""
    world = World(plan)
    try:
        world.run()
    except (Exception, Wrong) as error:
        return f"{type(error).__name__}: {error}", world
    return None, world


def shrunk(plan: Plan) -> Plan:
    """The plan without faults, twins and pipelines that are not needed to fail."""

    def still_fails(smaller: Plan) -> bool:
        return outcome_of(smaller)[0] is not None

    if still_fails(calmer := replace(plan, twins=0.0)):
        plan = calmer
    place = 0
    while place < len(plan.faults):
        fewer = replace(plan, faults=plan.faults[:place] + plan.faults[place + 1 :])
        if still_fails(fewer):
            plan = fewer
        else:
            place += 1
    return plan


def replay(plan: Plan, *, traces: bool) -> bool:
    print(plan.program, f"width {plan.width}", *plan.settings.items(), sep="\n  ")
    world = World(plan, traces=True)
    try:
        world.run()
    except (Exception, Wrong) as error:
        found = f"WRONG at event {world.sim.number}: {type(error).__name__}: {error}"
    else:
        found = f"all well after {world.sim.number} events, {world.sim.now:.1f} simulated seconds"
    assert world.sim.trace is not None
    shown = world.sim.trace if traces else world.sim.trace[-40:]
    print(*shown, found, sep="\n")
    return found.startswith("all")


class Summary(NamedTuple):
    """What is counted of a schedule."""

    seed: int
    wrong: str | None
    events: int
    faults: list[str]
    coverage: Seen


def summary_of(seed: int, wish: Wish) -> Summary:
    plan = Plan.draw(seed, wish)
    wrong, world = outcome_of(plan)
    faults = [fault.kind for fault in plan.faults]
    return Summary(seed, wrong, world.sim.number, faults, world.coverage)


def summaries(seeds: range, wish: Wish, jobs: int) -> Iterator[Summary]:
    """In order, whatever the number of processes."""
    gc.freeze()  # what is imported lives on
    summary = partial(summary_of, wish=wish)
    if jobs == 1:
        yield from map(summary, seeds)
    else:
        with multiprocessing.get_context("fork").Pool(jobs) as pool:
            yield from pool.imap(summary, seeds)


def run_many(
    seeds: range, minutes: float | None, report: Path | None, wish: Wish, jobs: int
) -> bool:
    started, failed, events, schedules = time.perf_counter(), [], 0, 0
    faults: Counter[str] = Counter()
    coverage: Seen = Counter()
    for each in summaries(seeds, wish, jobs):
        schedules, events = schedules + 1, events + each.events
        faults.update(each.faults)
        coverage.update(each.coverage)
        if each.wrong is not None:
            failed.append(each.seed)
            print(f"python -m tests.sim --seed {each.seed}  # {each.wrong}", flush=True)
        if minutes is not None and time.perf_counter() - started > 60 * minutes:
            break
    seconds = time.perf_counter() - started
    for pair in (impossible := contradictions(coverage)):
        print(f"{pair} was thought to be impossible")
    print(
        f"{schedules} schedules, {events} events, {len(failed)} wrong, {seconds:.0f} s, "
        f"{events / seconds:.0f} events a second"
    )
    if report is not None:
        report.parent.mkdir(exist_ok=True)
        report.write_text(
            json.dumps(
                {
                    "first_seed": seeds[0],
                    "schedules": schedules,
                    "events": events,
                    "wrong": failed,
                    "seconds": round(seconds, 1),
                    "faults": dict(sorted(faults.items())),
                    "coverage": never_seen(coverage),
                },
                indent=1,
            )
            + "\n"
        )
    return not failed and not impossible


def main() -> int:
    hasten()  # only here: other tests of a process need classes as they are
    parser = argparse.ArgumentParser(prog="python -m tests.sim", description=__doc__)
    parser.add_argument("--seed", type=int, help="replay this schedule")
    parser.add_argument("--trace", action="store_true", help="show all its events")
    parser.add_argument("--shrink", action="store_true", help="omit faults that are not needed")
    parser.add_argument("--first", type=int, default=0, help="the first of many seeds")
    parser.add_argument("--seeds", type=int, default=100, help="how many schedules to run")
    parser.add_argument("--jobs", type=int, default=1, help="how many processes run them")
    parser.add_argument("--minutes", type=float, help="stop after this long")
    parser.add_argument("--report", type=Path, help="write figures and coverage to this file")
    parser.add_argument("--bugs", type=int, metavar="SEEDS", help="find each planted bug")
    parser.add_argument("--bug", help="plant this bug first")
    options = parser.parse_args()
    if os.environ.get("PYTHONHASHSEED") != "0":
        # The order of sets is part of a schedule.
        arguments = [sys.executable, "-m", "tests.sim", *sys.argv[1:]]
        os.execve(sys.executable, arguments, {**os.environ, "PYTHONHASHSEED": "0"})
    logging.getLogger("tidegate").setLevel(logging.CRITICAL + 1)
    if options.bugs is not None:
        from tests.sim.bugs import find_all

        return int(not find_all(options.bugs, options.first, options.report, options.jobs))
    wish = ANY
    if options.bug is not None:
        from tests.sim.bugs import BUGS

        BUGS[options.bug].plant()
        wish = BUGS[options.bug].wish
    if options.seed is None:
        seeds = range(options.first, options.first + options.seeds)
        return int(not run_many(seeds, options.minutes, options.report, wish, options.jobs))
    plan = Plan.draw(options.seed, wish)
    if options.shrink and outcome_of(plan)[0] is not None:
        plan = shrunk(plan)
    _show(plan.faults)
    return int(not replay(plan, traces=options.trace))


def _show(faults: tuple[Fault, ...]) -> None:
    print("faults:", *(faults or ["none"]), sep="\n  ")


if __name__ == "__main__":
    sys.exit(main())
