"""The contract for moving a step through its slots, on Spark or in the in-process cluster."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from tidegate.core.ids import Address, SlotIndex
from tidegate.graph.job_graph import Pipeline
from tidegate.protocol.messages import StepOutcome, StepRequest

StepAnswer = Callable[["Sequence[StepOutcome] | StepBroken"], None]


class Exchange(Protocol):
    """Moves one step of a pipeline through its slots: delivers every unit, fetches its answer."""

    def run_step(
        self,
        pipeline: Pipeline,
        request: StepRequest,
        slots: Mapping[SlotIndex, Address],
        answer: StepAnswer,
    ) -> None:
        """Run all levels and answer with the reports of the slots, before it returns or later.

        StepBroken, as an answer or raised, means that the exchange itself failed: the step may be
        retried.
        """
        ...

    def try_step(
        self,
        pipeline: Pipeline,
        request: StepRequest,
        slots: Mapping[SlotIndex, Address],
        answer: StepAnswer,
    ) -> bool:
        """Run a step like `run_step` if that takes no more than some small messages.

        False: it may take longer, and nothing was done.
        """
        return False

    def cancel_step(self, pipeline: Pipeline) -> None:
        """Make a running step of this pipeline end soon."""

    def end_steps(self) -> None:
        """Release all resources: no steps follow."""


class StepBroken(Exception):
    """The exchange itself could not run a step."""


class NoRoom(StepBroken):
    """The exchange needs more of Spark than is free; another one may need less."""


class StepCanceled(StepBroken):
    """The step was canceled: the exchange is fine."""
