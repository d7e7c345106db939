"""``python -m tests.sim --seed 7`` replays one schedule; ``--seeds 1000`` runs many.

With ``--bug`` it does so for a planted bug, with the faults that are used to find it.

The same seed gives the same schedule, event by event, on every machine.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import sys
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

from tests.sim.clockwork import Wrong
from tests.sim.plans import ANY, Fault, Plan, Wish
from tests.sim.report import contradictions, never_seen
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


def run_many(
    first: int, count: int, minutes: float | None, report: Path | None, wish: Wish
) -> bool:
    started, failed, events, seeds = time.perf_counter(), [], 0, 0
    faults: Counter[str] = Counter()
    coverage: Counter[tuple[str, str, str]] = Counter()
    for seed in range(first, first + count):
        if minutes is not None and time.perf_counter() - started > 60 * minutes:
            break
        plan = Plan.draw(seed, wish)
        wrong, world = outcome_of(plan)
        seeds, events = seeds + 1, events + world.sim.number
        faults.update(fault.kind for fault in plan.faults)
        coverage.update(world.coverage)
        if wrong is not None:
            failed.append(seed)
            print(f"python -m tests.sim --seed {seed}  # {wrong}", flush=True)
    seconds = time.perf_counter() - started
    for pair in (impossible := contradictions(coverage)):
        print(f"{pair} was thought to be impossible")
    print(
        f"{seeds} schedules, {events} events, {len(failed)} wrong, {seconds:.0f} s, "
        f"{events / seconds:.0f} events a second"
    )
    if report is not None:
        report.parent.mkdir(exist_ok=True)
        report.write_text(
            json.dumps(
                {
                    "first_seed": first,
                    "schedules": seeds,
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
    parser = argparse.ArgumentParser(prog="python -m tests.sim", description=__doc__)
    parser.add_argument("--seed", type=int, help="replay this schedule")
    parser.add_argument("--trace", action="store_true", help="show all its events")
    parser.add_argument("--shrink", action="store_true", help="omit faults that are not needed")
    parser.add_argument("--first", type=int, default=0, help="the first of many seeds")
    parser.add_argument("--seeds", type=int, default=100, help="how many schedules to run")
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

        return int(not find_all(options.bugs, options.first, options.report))
    wish = ANY
    if options.bug is not None:
        from tests.sim.bugs import BUGS

        BUGS[options.bug].plant()
        wish = BUGS[options.bug].wish
    if options.seed is None:
        many = options.first, options.seeds, options.minutes, options.report, wish
        return int(not run_many(*many))
    plan = Plan.draw(options.seed, wish)
    if options.shrink and outcome_of(plan)[0] is not None:
        plan = shrunk(plan)
    _show(plan.faults)
    return int(not replay(plan, traces=options.trace))


def _show(faults: tuple[Fault, ...]) -> None:
    print("faults:", *(faults or ["none"]), sep="\n  ")


if __name__ == "__main__":
    sys.exit(main())
