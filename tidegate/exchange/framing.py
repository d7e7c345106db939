"""Packets on the wire: a header of fixed size, then the body."""

from __future__ import annotations

import struct
from typing import Final

from tidegate.core.ids import Attempt, EdgeId, StepNumber, SubtaskIndex, VertexId
from tidegate.protocol.packet import Packet, PacketHeader

_HEADER: Final = struct.Struct(">IQIIIII")
_TARGET_SUBTASK: Final = struct.Struct(">I")
_TARGET_SUBTASK_OFFSET: Final = _HEADER.size - 8


def encode_header(header: PacketHeader) -> bytes:
    """Encode the fixed-size header of a packet; the body follows."""
    return _HEADER.pack(
        header.attempt,
        header.step,
        header.edge,
        header.source,
        header.target_vertex,
        header.target_subtask,
        header.sequence,
    )


def decode_packet(data: bytes | bytearray | memoryview) -> Packet:
    """Decode the packet of a frame; its body is a view of `data`."""
    attempt, step, edge, source, vertex, subtask, sequence = _HEADER.unpack_from(data)
    header = PacketHeader(
        Attempt(attempt),
        StepNumber(step),
        EdgeId(edge),
        SubtaskIndex(source),
        VertexId(vertex),
        SubtaskIndex(subtask),
        sequence,
    )
    return Packet(header, memoryview(data)[_HEADER.size :])


def target_of(packet: bytes | bytearray) -> int:
    """The target slot of an encoded packet."""
    return int(_TARGET_SUBTASK.unpack_from(packet, _TARGET_SUBTASK_OFFSET)[0])
