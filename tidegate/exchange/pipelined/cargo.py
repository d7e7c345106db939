"""The wire format of cargo, which pumps carry between slots as opaque bytes.

cargo = attempt · step · source slot · is last · item*
item  = kind (1 byte) · length (8 bytes) · a packet or a pickled mark
"""

from __future__ import annotations

import pickle
import struct
from collections.abc import Iterator, Sequence
from typing import Final

from tidegate.core.errors import ProtocolViolation
from tidegate.core.ids import Attempt, SlotIndex, StepNumber
from tidegate.exchange.framing import decode_packet, encode_header
from tidegate.exchange.spill import loaded
from tidegate.exchange.unit_protocol import Frame
from tidegate.protocol.arrivals import Cargo
from tidegate.protocol.packet import FailureMark, Packet
from tidegate.protocol.units import UnitKey

_HEAD: Final = struct.Struct(">IQI?")
_ITEM: Final = struct.Struct(">BQ")
_ENOUGH_BYTES: Final = 1 << 20
"""Cargo of this size is sent: the rest can travel while it is unpacked."""

Part = bytes | bytearray | memoryview


def encode_cargo(
    key: UnitKey,
    source: SlotIndex,
    packets: Sequence[Packet],
    marks: Sequence[FailureMark] = (),
    *,
    is_last: bool = True,
) -> Iterator[list[Part]]:
    """Encode what a unit sends to one slot, in few pieces; the last one may end the step for it."""
    parts: list[Part] = []
    size = 0
    for packet in packets:
        if size >= _ENOUGH_BYTES:
            yield [_HEAD.pack(key.attempt, key.step, source, False), *parts]
            parts, size = [], 0
        header, body = encode_header(packet.header), loaded(packet.body)
        parts += (_ITEM.pack(Frame.PACKET, len(header) + len(body)), header, body)
        size += len(body)
    for mark in marks:
        pickled = pickle.dumps(mark)
        parts += (_ITEM.pack(Frame.MARK, len(pickled)), pickled)
    yield [_HEAD.pack(key.attempt, key.step, source, is_last), *parts]


def decode_cargo(data: bytes | bytearray | memoryview) -> Cargo:
    """Decode the cargo of a frame; the bodies of its packets are views of `data`."""
    view = memoryview(data)
    attempt, step, source, is_last = _HEAD.unpack_from(view)
    packets: list[Packet] = []
    marks: list[FailureMark] = []
    position = _HEAD.size
    while position < len(view):
        kind, length = _ITEM.unpack_from(view, position)
        position += _ITEM.size
        item = view[position : position + length]
        position += length
        match kind:
            case Frame.PACKET:
                packets.append(decode_packet(item))
            case Frame.MARK:
                marks.append(pickle.loads(item))
            case _:
                raise ProtocolViolation(f"a pump delivered an item of kind {kind}")
    return Cargo(
        Attempt(attempt),
        StepNumber(step),
        SlotIndex(source),
        is_last,
        tuple(packets),
        tuple(marks),
    )
