"""The bytes of keys are equal exactly if the keys are."""

import datetime as dt
from dataclasses import dataclass
from decimal import Decimal
from enum import Enum, IntEnum

from hypothesis import given
from hypothesis import strategies as st

from tidegate.state.keys.key_bytes import is_plain, key_bytes, key_of_bytes
from tidegate.types.instant import Instant
from tidegate.types.row import Row


class Colour(Enum):
    RED = 1
    BLUE = 2


class Size(IntEnum):
    SMALL = 1
    LARGE = 2


@dataclass(frozen=True)
class Place:
    x: int
    y: int


SINGLE = (
    st.integers(-3, 3)
    | st.integers()
    | st.booleans()
    | st.sampled_from([0.0, -0.0, 1.0, 0.5, 1e300, float("inf"), float("-inf")])
    | st.floats(allow_nan=False)
    | st.decimals(-2, 2, places=1)
    | st.decimals(allow_nan=False)
    | st.text(max_size=3)
    | st.binary(max_size=3)
    | st.none()
    | st.dates(dt.date(2020, 1, 1), dt.date(2020, 1, 3))
    | st.datetimes()
    | st.datetimes(timezones=st.sampled_from([dt.UTC, dt.timezone(dt.timedelta(hours=2))]))
    | st.times()
    | st.timedeltas()
    | st.uuids()
    | st.sampled_from([*Colour, *Size])
    | st.builds(Place, st.integers(0, 1), st.integers(0, 1))
    | st.builds(Instant, st.integers(0, 2), st.integers(0, 2))
    | st.builds(Row, st.integers(0, 2), st.text(max_size=1))
    | st.builds(lambda a, b: Row(a=a, b=b), st.integers(0, 1), st.integers(0, 1))
    | st.builds(lambda a, b: Row(b=b, a=a), st.integers(0, 1), st.integers(0, 1))
)
KEYS = st.recursive(SINGLE, lambda inner: st.tuples(inner) | st.tuples(inner, inner), max_leaves=4)


@given(KEYS, KEYS)
def test_bytes_are_equal_exactly_where_keys_are(one, other):
    assert (key_bytes(one) == key_bytes(other)) == (one == other)


@given(SINGLE)
def test_plain_keys_are_read_back_as_they_were(key):
    if is_plain(key):
        found = key_of_bytes(key_bytes(key))
        assert (type(found), found) == (type(key), key)


@given(KEYS)
def test_no_key_looks_like_a_timer(key):
    assert key_bytes(key)[0] < 0xFF


def test_equal_numbers_of_different_types_share_their_bytes():
    assert len({key_bytes(key) for key in (1, 1.0, True, Decimal(1), Size.SMALL)}) == 1
