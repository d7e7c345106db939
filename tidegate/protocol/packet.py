"""What travels between slots: elements of one channel, and failures on their way to the driver."""

from __future__ import annotations

from collections.abc import Sized
from dataclasses import dataclass
from typing import NamedTuple

from tidegate.core.errors import SlotLost
from tidegate.core.ids import Attempt, EdgeId, SlotIndex, StepNumber, SubtaskIndex, VertexId


class Channel(NamedTuple):
    """One sender of one edge, as the receiving subtask tells its senders apart."""

    edge: EdgeId
    source: SubtaskIndex


class PacketPosition(NamedTuple):
    """Where a packet stands in its unit: two packets of one position are one, sent twice."""

    target_vertex: VertexId
    target_subtask: SubtaskIndex
    edge: EdgeId
    source: SubtaskIndex
    sequence: int


@dataclass(frozen=True, slots=True)
class PacketHeader:
    """Whose elements these are, who is to get them, and where they stand in their channel."""

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
        """The sort key of a unit: vertices in topological order, each channel in its own order."""
        return PacketPosition(
            self.target_vertex, self.target_subtask, self.edge, self.source, self.sequence
        )


@dataclass(frozen=True, slots=True)
class Packet:
    """Encoded stream elements with their header."""

    header: PacketHeader
    body: Sized
    """The protocol never looks inside: bytes, or where they were spilled to."""


@dataclass(frozen=True, slots=True)
class FailureMark:
    """Says that a step went through without all of its work: the region fails after it.

    A mark travels like a packet, but to *every* slot of the next level, and is part of the sealed
    answer of each unit it reached: however often Spark repeats a task, a unit that ran without
    some of its input cannot end in a step that looks whole.
    """

    slot: SlotIndex
    cause: Exception


@dataclass(frozen=True, slots=True)
class SlotOutOfReach:
    """What a step task says instead of a report when its slot did not answer."""

    slot: SlotIndex
    reason: str

    def as_error(self) -> SlotLost:
        return SlotLost(self.slot, self.reason)
