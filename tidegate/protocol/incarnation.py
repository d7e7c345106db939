"""Who a slot process is."""

from __future__ import annotations

import secrets
from dataclasses import dataclass

from tidegate.core.ids import SlotIndex


@dataclass(frozen=True, slots=True)
class Incarnation:
    """One process that serves, or served, a slot.

    Spark may start the task of a slot again by itself, and a process that was thought dead may
    wake up, so the slot's number alone says nothing; every message carries its incarnation.
    """

    slot: SlotIndex
    launch: int
    """Which Spark job for this slot: counts up in the driver."""
    task_attempt: int
    """Which try of Spark's at the task of that job."""
    nonce: str
    """Tells apart two processes of which Spark says the same."""

    @classmethod
    def create(cls, slot: SlotIndex, launch: int, task_attempt: int) -> Incarnation:
        return cls(slot, launch, task_attempt, secrets.token_hex(8))

    @property
    def age(self) -> tuple[int, int]:
        """Grows with every start that Spark makes."""
        return (self.launch, self.task_attempt)

    def __str__(self) -> str:
        return f"slot {self.slot} (start {self.launch}.{self.task_attempt}, {self.nonce})"
