"""Coverage of schedules: states of the driver, events in them, and faults before them."""

from __future__ import annotations

import re
from collections import Counter
from itertools import product
from typing import Any

from tests.sim.plans import ALL_KINDS
from tidegate.driver import job_master, pipeline_driver
from tidegate.driver.checkpoints import store_thread
from tidegate.protocol import messages
from tidegate.protocol.region import RegionState

Seen = Counter[tuple[str, str, str]]
IMPOSSIBLE = {
    r"FAILING.*": "a region leaves this state before the next event is taken",
    r"(CREATED|DEPLOYING|RESTARTING|CANCELLING) pending.*": (
        "a checkpoint needs all regions to run, and is aborted when one fails or is canceled"
    ),
    r"(CREATED|DEPLOYING) publishing.*": "nothing is deployed before a publication is settled",
    r"[A-Z]+ (pending|publishing) / (Deployed|StateRead)": (
        "a checkpoint needs all regions to run, so all slots have opened theirs, and nothing is "
        "deployed before its publication is settled"
    ),
    r"CREATED / (?!Register|SlotHeartbeat|LineEnded|SlotJobEnded).*": (
        "nothing was deployed that could say this"
    ),
    r"[A-Z]+( pending)? / PublicationSettled": "what is settled was being published until now",
    r".* / (FunctionLog|Inspected|RecordsSkipped)": (
        "the programs log and skip nothing, and nobody inspects them"
    ),
}
"""Impossible pairs of state and event, or fault, and why."""


def _states() -> list[str]:
    running = ("", " pending", " publishing")
    return [f"{s.name}{p}" for s in RegionState if not s.is_terminal for p in running]


def _events() -> list[str]:
    return sorted(
        cls.__name__
        for cls in (
            *messages.SlotMessage.__args__,  # type: ignore[attr-defined]
            *pipeline_driver.StepEvent.__args__,
            *store_thread.CheckpointEvent.__args__,
            job_master.LineEnded,
            job_master.SlotJobEnded,
        )
        if cls.__name__ not in ("ConsoleLines", "Collected")
    )


def is_impossible(state: str, other: str) -> bool:
    pair = f"{state} / {other}"
    return any(re.fullmatch(each, pair) for each in IMPOSSIBLE)


def contradictions(coverage: Seen) -> list[str]:
    """Impossible pairs that were seen."""
    known = set(_events())
    return sorted(
        {f"{s} / {event}" for s, event, _ in coverage if event in known and is_impossible(s, event)}
    )


def never_seen(coverage: Seen) -> dict[str, Any]:
    """How many possible pairs were seen, and which were not."""
    report: dict[str, Any] = {"triples seen": len(coverage)}
    for name, others, seen in (
        ("state x event", _events(), {(state, event) for state, event, _ in coverage}),
        ("state x fault", list(ALL_KINDS), {(state, fault) for state, _, fault in coverage}),
    ):
        possible = [pair for pair in product(_states(), others) if not is_impossible(*pair)]
        missing = [" / ".join(pair) for pair in possible if pair not in seen]
        report[name] = f"{len(possible) - len(missing)} of {len(possible)}"
        report[f"never: {name}"] = missing
    return report
