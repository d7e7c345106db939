"""What moves a step through its slots; Spark and the in-process cluster provide it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from tidegate.core.ids import Address, SlotIndex
from tidegate.graph.job_graph import Pipeline
from tidegate.protocol.messages import StepOutcome, StepRequest

StepAnswer = Callable[["Sequence[StepOutcome] | StepBroken"], None]


class Exchange(Protocol):
    """Moves one step of a pipeline through its slots: deliver every unit, fetch its answer."""

    def run_step(
        self,
        pipeline: Pipeline,
        request: StepRequest,
        slots: Mapping[SlotIndex, Address],
        answer: StepAnswer,
    ) -> None:
        """Run all levels and answer with what each slot says, before it returns or later.

        StepBroken, as an answer or raised, says that the exchange itself failed: the step may be
        run again.
        """
        ...

    def cancel_step(self, pipeline: Pipeline) -> None:
        """Make a running step of this pipeline end soon."""

    def end_steps(self) -> None:
        """No step follows: release what is held for them."""


class StepBroken(Exception):
    """The exchange could not run a step, for reasons of its own."""


class NoRoom(StepBroken):
    """The exchange needs more of Spark than is free; another one may do with less."""


class StepCanceled(StepBroken):
    """The step was canceled: nothing is wrong with the exchange."""
