"""The contract between the job master and its cluster: Spark, or the in-process one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from tidegate.core.errors import ExternalError
from tidegate.core.ids import SlotIndex
from tidegate.protocol.incarnation import Incarnation
from tidegate.protocol.messages import DriverMessage, SlotMessage


@dataclass(frozen=True, slots=True)
class FromSlot:
    """A message from a slot process."""

    incarnation: Incarnation
    message: SlotMessage


@dataclass(frozen=True, slots=True)
class LineEnded:
    """The control line of a slot process is closed."""

    incarnation: Incarnation
    is_certain: bool = True
    """Whether the process has ended; if not, only the line may have failed."""


@dataclass(frozen=True, slots=True)
class SlotJobEnded:
    """The job that runs the processes of a slot has ended."""

    slot: SlotIndex
    reason: str


ClusterEvent = FromSlot | LineEnded | SlotJobEnded


class Cluster(Protocol):
    """Starts slot processes and sends them messages. No method waits for a slot.

    `shortage` and `launch` may wait for Spark, so they have a thread of their own. `close` may come
    while they do.
    """

    def start(self, post: Callable[[ClusterEvent], None]) -> None:
        """Start reporting events, from any thread."""

    def shortage(self) -> ExternalError | None:
        """Why not all slots can be started now, if resources are short."""

    def launch(self, slot: SlotIndex, number: int) -> None:
        """Start a process for this slot; it registers under this launch number."""

    def send(self, incarnation: Incarnation, message: DriverMessage) -> None:
        """Send a message, or drop it if the process is gone; its end is reported anyway."""

    def kill(self, slot: SlotIndex) -> None:
        """Kill the process of a slot that does not exit by itself."""

    def close(self) -> None:
        """End everything that was started, in whatever state, or that is about to start."""
