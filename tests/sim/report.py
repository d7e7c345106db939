"""What schedules have reached: states of the driver, events that came then, faults before them."""

from __future__ import annotations

from collections import Counter
from itertools import product
from typing import Any

from tests.sim.plans import KINDS
from tidegate.driver import job_master, pipeline_driver
from tidegate.driver.checkpoints import store_thread
from tidegate.protocol import messages
from tidegate.protocol.region import RegionState

Seen = Counter[tuple[str, str, str]]


def never_seen(coverage: Seen) -> dict[str, Any]:
    """How many pairs of state and event, and of state and fault, were seen; and which were not."""
    running = ("", " pending", " publishing")
    states = [f"{s.name}{p}" for s in RegionState if not s.is_terminal for p in running]
    events = sorted(
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
    pairs = {(state, event) for state, event, _ in coverage}
    under = {(state, fault) for state, _, fault in coverage}
    unseen = [pair for pair in product(states, events) if pair not in pairs]
    untried = [pair for pair in product(states, KINDS) if pair not in under]
    return {
        "triples seen": len(coverage),
        "state x event": f"{len(pairs & set(product(states, events)))} of "
        f"{len(states) * len(events)}",
        "state x fault": f"{len(under & set(product(states, KINDS)))} of "
        f"{len(states) * len(KINDS)}",
        "never: state x event": [" / ".join(pair) for pair in unseen],
        "never: state x fault": [" / ".join(pair) for pair in untried],
    }
