"""What the job master needs of its surroundings; Spark and the in-process cluster provide it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from tidegate.core.errors import TidegateError
from tidegate.core.ids import SlotIndex
from tidegate.protocol.incarnation import Incarnation
from tidegate.protocol.messages import DriverMessage, SlotMessage


@dataclass(frozen=True, slots=True)
class FromSlot:
    """A message of a slot process."""

    incarnation: Incarnation
    message: SlotMessage


@dataclass(frozen=True, slots=True)
class LineEnded:
    """The control line of a slot process is closed."""

    incarnation: Incarnation
    is_certain: bool = True
    """Whether the process has ended; if not, it may be alive and only the line has failed."""


@dataclass(frozen=True, slots=True)
class SlotJobEnded:
    """What ran the processes of a slot has given up."""

    slot: SlotIndex
    reason: str


ClusterEvent = FromSlot | LineEnded | SlotJobEnded


class Cluster(Protocol):
    """Starts slot processes and carries messages to them. Nothing here waits for a slot."""

    def start(self, post: Callable[[ClusterEvent], None]) -> None:
        """Begin to report events, from any thread."""

    def shortage(self) -> TidegateError | None:
        """Why not all slots can be started now, if that is for lack of room."""

    def launch(self, slot: SlotIndex, number: int) -> None:
        """Have a process for this slot started; it will register under this launch number."""

    def send(self, incarnation: Incarnation, message: DriverMessage) -> None:
        """Send, or drop the message if the process is gone: its end is reported anyway."""

    def kill(self, slot: SlotIndex) -> None:
        """End the process of a slot that does not end itself."""

    def close(self) -> None:
        """End everything that was started, whatever state it is in."""
