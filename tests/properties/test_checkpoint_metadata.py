import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.effort import examples
from tests.properties.checkpoint_strategies import METADATA
from tidegate.checkpoint.metadata import decode, encode
from tidegate.core.errors import CorruptCheckpoint

FEW = examples(25)


@FEW
@given(METADATA)
def test_what_is_encoded_is_decoded(metadata):
    assert decode(encode(metadata), "here") == metadata


@FEW
@given(METADATA, st.data())
def test_a_changed_byte_is_found_wherever_it_is(metadata, data):
    encoded = bytearray(encode(metadata))
    place = data.draw(st.integers(0, len(encoded) - 1))
    encoded[place] ^= data.draw(st.integers(1, 255))
    with pytest.raises(CorruptCheckpoint, match="here is corrupt"):
        decode(bytes(encoded), "here")


@FEW
@given(METADATA, st.data())
def test_a_cut_is_found_wherever_it_is(metadata, data):
    encoded = encode(metadata)
    with pytest.raises(CorruptCheckpoint, match="here is corrupt"):
        decode(encoded[: data.draw(st.integers(0, len(encoded) - 1))], "here")


@FEW
@given(st.binary(max_size=60), METADATA, st.booleans())
def test_anything_else_is_refused(junk, metadata, follows):
    encoded = encode(metadata) + b"\0" + junk if follows else junk
    with pytest.raises(CorruptCheckpoint, match="here is corrupt"):
        decode(encoded, "here")
