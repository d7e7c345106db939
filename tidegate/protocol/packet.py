"""What travels between slots: packets of one channel, and marks of failures."""

from __future__ import annotations

from collections.abc import Sized
from dataclasses import dataclass
from typing import NamedTuple

from tidegate.core.errors import SlotLost
from tidegate.core.ids import Attempt, EdgeId, SlotIndex, StepNumber, SubtaskIndex, VertexId


class Channel(NamedTuple):
    """One sender on one edge, as the receiving subtask identifies it."""

    edge: EdgeId
    source: SubtaskIndex


class PacketPosition(NamedTuple):
    """The position of a packet in its unit; packets with equal positions are duplicates."""

    target_vertex: VertexId
    target_subtask: SubtaskIndex
    edge: EdgeId
    source: SubtaskIndex
    sequence: int


@dataclass(frozen=True, slots=True)
class PacketHeader:
    """Sender, receiver and position of a packet."""

    attempt: Attempt
    step: StepNumber
    edge: EdgeId
    source: SubtaskIndex
    target_vertex: VertexId
    target_subtask: SubtaskIndex
    sequence: int
    """Counts the packets of this channel to this target within the step, from 0."""

    @property
    def channel(self) -> Channel:
        return Channel(self.edge, self.source)

    @property
    def position(self) -> PacketPosition:
        """The sort key within a unit: by vertex in topological order, then by channel."""
        return PacketPosition(
            self.target_vertex, self.target_subtask, self.edge, self.source, self.sequence
        )


@dataclass(frozen=True, slots=True)
class Packet:
    """Encoded stream elements with their header."""

    header: PacketHeader
    body: Sized
    """Opaque to the protocol: bytes, or where they were spilled to."""


@dataclass(frozen=True, slots=True)
class FailureMark:
    """Marks a step that ran without all of its input: the region fails after it.

    A mark travels like a packet, but to *every* slot of the next level, and is part of the sealed
    answer of each unit it reached. However often Spark repeats a task, a unit that lacked input
    cannot end in a step that looks complete.
    """

    slot: SlotIndex
    cause: Exception


@dataclass(frozen=True, slots=True)
class SlotOutOfReach:
    """A step task's answer in place of a report when its slot did not respond."""

    slot: SlotIndex
    reason: str

    def as_error(self) -> SlotLost:
        return SlotLost(self.slot, self.reason)
