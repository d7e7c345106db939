"""Bugs of leases and incarnations."""

from __future__ import annotations

from typing import Any

from tests.sim.bugs.planting import bug, instead, section
from tidegate.core.permit import Permit
from tidegate.protocol.slot_machine import SlotMachine
from tidegate.protocol.slot_pool import SlotPool
from tidegate.slot.slot_host import _Hosted

section(
    "put a slot to sleep",
    "cut a line",
    "reset a line",
    "give a slot up",
    "start a slot twice",
    moments=(
        "a process registers",
        "a deployment arrives",
        "a completion arrives",
        "a barrier starts",
        "a transaction begins",
        "slot between pre-commit and commit",
    ),
)


def _open_unleased(original: Any) -> Any:
    def open_now(self: Any, pipeline: Any, attempt: Any, now: float) -> bool:
        if self._units[pipeline].deployed != attempt:
            return False
        self._open[pipeline] = attempt
        return True

    return open_now


def _act_unleased(original: Any) -> Any:
    def may_act(self: Any, pipeline: Any, attempt: Any, now: float) -> bool:
        return bool(self._open.get(pipeline) == attempt == self._units[pipeline].attempt)

    return may_act


def _lease_from_answer(original: Any) -> Any:
    def answered(self: Any, number: int, now: float) -> None:
        self._beats.pop(number, None)
        self._leased_until = now + self._lease

    return answered


def _superseded_is_harmless(original: Any) -> Any:
    return lambda self, slot, reason, now, *, may_act: original(
        self, slot, reason, now, may_act=False
    )


bug(
    "the lease is never looked at",
    (SlotMachine, "has_lease", lambda o: lambda self, now: not self.is_exiting),
)
bug(
    "a slot runs and aborts without a lease",
    (SlotMachine, "may_act", _act_unleased),
    (Permit, "require", instead(None)),
)
bug(
    "the successor of a process that may act is used at once",
    (SlotPool, "_give_up", _superseded_is_harmless),
)
bug(
    "a slot that is silent is never missed",
    (SlotPool, "tick", instead([])),
)
bug(
    "a slot is given up before its lease has ended",
    (SlotPool, "_lease_end", lambda o: lambda self, now: now + 0.4 * self._lease),
)
section(
    "put a slot to sleep",
    moments=("a completion arrives", "a barrier starts"),
    interval=300,
    faults=4,
)
bug(
    "a line that is cut counts as a death",
    (
        SlotPool,
        "line_ended",
        lambda o: lambda self, who, now, *, is_certain: o(self, who, now, is_certain=True),
    ),
)
bug(
    "an attempt is not closed before the next is opened",
    (_Hosted, "_close_host", lambda o: lambda self: setattr(self, "_host", None)),
    sink="function",
)

section("put a slot to sleep", moments=("a deployment arrives",))
bug(
    "a slot opens without a lease",
    (SlotMachine, "open", _open_unleased),
    (Permit, "require", instead(None)),
)

section("pause a slot", "put a slot to sleep")
bug("a lease counts from when its answer is read", (SlotMachine, "answered", _lease_from_answer))
