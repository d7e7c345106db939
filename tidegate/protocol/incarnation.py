"""The identity of a slot process."""

from __future__ import annotations

import secrets
from dataclasses import dataclass

from tidegate.core.ids import SlotIndex


@dataclass(frozen=True, slots=True)
class Incarnation:
    """One process that serves, or served, a slot.

    Spark may restart the task of a slot, and a process that was believed dead may wake up. The
    index of the slot does not tell them apart, so every message carries the incarnation.
    """

    slot: SlotIndex
    launch: int
    """The number of the Spark job for this slot, counted by the driver."""
    task_attempt: int
    """Spark's attempt number of the task."""
    nonce: str
    """Tells apart processes with the same launch and task attempt."""

    @classmethod
    def create(cls, slot: SlotIndex, launch: int, task_attempt: int) -> Incarnation:
        return cls(slot, launch, task_attempt, secrets.token_hex(8))

    @property
    def age(self) -> tuple[int, int]:
        """Grows with every start."""
        return (self.launch, self.task_attempt)

    def __str__(self) -> str:
        return f"slot {self.slot} (start {self.launch}.{self.task_attempt}, {self.nonce})"
