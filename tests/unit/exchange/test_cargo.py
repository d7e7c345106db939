import pytest

from tidegate.core.errors import ProtocolViolation
from tidegate.exchange.pipelined import cargo as module
from tidegate.exchange.pipelined.cargo import decode_cargo, encode_cargo
from tidegate.protocol.packet import FailureMark, Packet, PacketHeader
from tidegate.protocol.units import UnitKey

KEY = UnitKey(3, 9, 1)


def packet(sequence, body=b"body"):
    return Packet(PacketHeader(3, 9, 0, 1, 2, 0, sequence), body)


def sent(packets, marks=()):
    return [decode_cargo(b"".join(parts)) for parts in encode_cargo(KEY, 1, packets, marks)]


def test_cargo_arrives_as_it_was_sent():
    (found,) = sent([packet(0), packet(1, b"")], [FailureMark(0, ValueError("no"))])
    assert (found.attempt, found.step, found.source, found.is_last) == (3, 9, 1, True)
    assert [(p.header, bytes(p.body)) for p in found.packets] == [
        (packet(0).header, b"body"),
        (packet(1).header, b""),
    ]
    assert [repr(mark) for mark in found.marks] == [repr(FailureMark(0, ValueError("no")))]


def test_a_slot_without_packets_still_ends_the_step():
    (found,) = sent([])
    assert found.is_last and not found.packets


def test_large_cargo_travels_in_pieces_and_only_the_last_one_ends_the_step(monkeypatch):
    monkeypatch.setattr(module, "_ENOUGH_BYTES", 10)
    found = sent([packet(i, b"12345678") for i in range(5)])
    assert [len(piece.packets) for piece in found] == [2, 2, 1]
    assert [piece.is_last for piece in found] == [False, False, True]


def test_an_unknown_item_is_refused():
    (parts,) = encode_cargo(KEY, 1, [packet(0)], [])
    data = bytearray(b"".join(parts))
    data[module._HEAD.size] = 99
    with pytest.raises(ProtocolViolation, match="kind 99"):
        decode_cargo(data)
