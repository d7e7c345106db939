"""Bugs of units of work and steps."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.sim.bugs.planting import bug, instead, section
from tidegate.driver.pipeline_driver import PipelineDriver
from tidegate.exchange.step_task import StageTask
from tidegate.protocol import units
from tidegate.protocol.pacing import NextStep, StepCaller
from tidegate.protocol.region import Region
from tidegate.protocol.slot_machine import SlotMachine
from tidegate.protocol.units import WorkUnits

section("steps break", "kill a slot", "user code fails", "put a slot to sleep", "savepoint")


def _runs_every_delivery(original: Any) -> Any:
    def complete(self: Any, key: Any, packets: Any) -> Any:
        self._answers.pop(key.level, None)
        self._running.discard(key.level)
        return original(self, key, packets)

    return complete


def _keeps_duplicates(original: Any) -> Any:
    return lambda key, packets: tuple(sorted(packets, key=lambda packet: packet.header.position))


def _as_delivered(original: Any) -> Any:
    def in_order(key: Any, packets: Any) -> Any:
        return tuple({packet.header.position: packet for packet in packets}.values())

    return in_order


bug("a unit runs each time that it is delivered", (WorkUnits, "complete", _runs_every_delivery))
bug("packets that come twice are processed twice", (units, "in_order", _keeps_duplicates))
bug("packets are processed in the order of their arrival", (units, "in_order", _as_delivered))
bug(
    "a step of another attempt is not stale",
    (WorkUnits, "_staleness", instead(None)),
    (
        SlotMachine,
        "may_run",
        lambda o: lambda self, pipeline, key, now: self.has_lease(now),
    ),
)


def _without_marks(original: Any) -> Any:
    def call(self: Any, slot: int, shipments: Any) -> Any:
        for output in original(self, slot, shipments):
            if not (isinstance(output, tuple) and output[1][0].name == "MARK"):
                yield output

    return call


def _ignores_failures(original: Any) -> Any:
    def step_through(self: Any, attempt: Any, step: Any, failures: Any = (), **more: Any) -> Any:
        return original(self, attempt, step, (), **more)

    return step_through


bug("a step with a failure mark counts as whole", (Region, "step_through", _ignores_failures))
bug(
    "a broken step is run again under a new number",
    (
        Region,
        "step_broke",
        lambda o: (
            lambda self, attempt, step, reason: (
                setattr(self, "step_in_flight", None) if self.runs(attempt, step) else None
            )
        ),
    ),
)
bug(
    "a repeated step asks the enumerators again",
    (
        PipelineDriver,
        "_request_for",
        lambda o: (
            lambda self, order, assigner, barriers: o(
                self, replace(order, tries=1), assigner, barriers
            )
        ),
    ),
)
bug(
    "a repeated step carries no barrier",
    (
        NextStep,
        "begin",
        lambda o: lambda self, order, *now: o(self, order, *now) if order.tries == 1 else (),
    ),
    (
        PipelineDriver,
        "_request_for",
        lambda o: (
            lambda self, order, assigner, barriers: replace(
                o(self, order, assigner, barriers), barriers=barriers
            )
        ),
    ),
)
bug(
    "a slot never calls for a step",
    (StepCaller, "calls", instead(False)),
    interval=600_000,
)
bug(
    "a region goes on without a slot that is gone",
    (Region, "slot_gone", instead(None)),
)
bug(
    "a region runs before all slots have opened it",
    (
        Region,
        "deployed",
        lambda o: lambda self, slot, attempt: (self._awaited.clear(), o(self, slot, attempt))[-1],
    ),
)

section("steps break", moments=("a step starts",), width=2, faults=4)
bug("failure marks do not travel on", (StageTask, "__call__", _without_marks))

section(
    "user code fails",
    "the bank fails @ a transaction begins",
    moments=(),
    width=3,
    delay=1,
    faults=4,
)
bug(
    "a failure of an older attempt fails the present one",
    (Region, "fail", lambda o: lambda self, attempt, cause: o(self, self.attempt, cause)),
    (Region, "runs", lambda o: lambda self, attempt, step: step == self.step_in_flight),
)
