"""Decoding a packet gives what was encoded."""

from hypothesis import given
from hypothesis import strategies as st

from tests.effort import examples
from tests.properties.strategies import as_plain, batches, channels, typed_records
from tidegate.exchange.codec import decode, encode
from tidegate.exchange.framing import decode_packet, encode_header, target_of
from tidegate.protocol.packet import PacketHeader


@given(channels())
@examples()
def test_any_sequence_of_elements_survives_a_packet(channel):
    format, elements = channel
    body = b"".join(encode(element) for element in elements)
    assert list(map(as_plain, decode(body, format))) == list(map(as_plain, elements))


@given(st.sampled_from(typed_records()).flatmap(batches))
@examples()
def test_typed_records_arrive_as_columns(batch):
    (arrived,) = decode(encode(batch), batch.format)
    assert arrived.is_columnar
    assert arrived.columns.num_rows == len(batch)


@given(channels(), channels())
@examples(30)
def test_packets_of_one_channel_can_be_read_one_after_the_other(first, second):
    format, elements = first
    more = second[1] if second[0] == format else []
    halves = [b"".join(map(encode, part)) for part in (elements, more)]
    arrived = [element for half in halves for element in decode(bytearray(half), format)]
    assert list(map(as_plain, arrived)) == list(map(as_plain, [*elements, *more]))


numbers = st.integers(0, 2**32 - 1)


@given(
    st.builds(
        PacketHeader,
        numbers,
        st.integers(0, 2**64 - 1),
        numbers,
        numbers,
        numbers,
        numbers,
        numbers,
    ),
    st.binary(max_size=20),
)
def test_a_packet_is_its_header_and_its_body(header, body):
    wire = encode_header(header) + body
    packet = decode_packet(bytearray(wire))
    assert packet.header == header
    assert bytes(packet.body) == body
    assert target_of(wire) == header.target_subtask
