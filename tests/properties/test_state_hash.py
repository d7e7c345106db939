"""Hashing columns of keys equals hashing their values one by one."""

import datetime as dt
from decimal import Decimal

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from tests.effort import examples
from tidegate.state.keys.hash_columns import hash_column, hash_columns, hash_values
from tidegate.state.keys.selection import select_key
from tidegate.state.keys.stable_hash import stable_hash
from tidegate.stream.batch import Batch
from tidegate.types.arrow import arrow_format
from tidegate.types.instant import Instant
from tidegate.types.typeinfo import Types

# The duration of an example depends more on other load of the machine than on the code.
USUAL = examples()
_YEARS = {"min_value": dt.datetime(1700, 1, 1), "max_value": dt.datetime(2200, 1, 1)}  # noqa: DTZ001
INTEGERS = {
    kind: st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    for kind, bits in ((pa.int8(), 8), (pa.int16(), 16), (pa.int32(), 32), (pa.int64(), 64))
}
UNSIGNED = {
    kind: st.integers(0, 2**bits - 1)
    for kind, bits in ((pa.uint8(), 8), (pa.uint16(), 16), (pa.uint32(), 32), (pa.uint64(), 64))
}
VALUES = {
    **INTEGERS,
    **UNSIGNED,
    pa.bool_(): st.booleans(),
    pa.float64(): st.floats() | st.integers(-(2**70), 2**70).map(float),
    pa.float32(): st.floats(width=32),
    pa.string(): st.text(max_size=20),
    pa.large_string(): st.text(max_size=20),
    pa.string_view(): st.text(max_size=20),
    pa.binary(): st.binary(max_size=20),
    pa.binary(3): st.binary(min_size=3, max_size=3),
    pa.date32(): st.dates(),
    pa.date64(): st.dates(),
    pa.time32("ms"): st.times().map(lambda t: t.replace(microsecond=t.microsecond // 1000 * 1000)),
    pa.time64("us"): st.times(),
    pa.timestamp("us"): st.datetimes(),
    pa.timestamp("ns"): st.datetimes(**_YEARS),
    pa.timestamp("us", "UTC"): st.datetimes(timezones=st.just(dt.UTC)),
    pa.timestamp("us", "+02:00"): st.datetimes(**_YEARS, timezones=st.just(dt.UTC)),
    pa.duration("us"): st.timedeltas(dt.timedelta(days=-9999), dt.timedelta(days=9999)),
    pa.decimal128(12, 3): st.decimals(-999_999_999, 999_999_999, places=3),
}


@st.composite
def columns(draw, least=0):
    """A column of any key type, with few or many values, some null, perhaps a slice."""
    kind = draw(st.sampled_from(sorted(VALUES, key=str)))
    values = draw(st.lists(st.none() | VALUES[kind], min_size=least, max_size=8))
    repeated = values * draw(st.sampled_from([1, 1, 20]))
    column = pa.array(repeated, kind)
    start = draw(st.integers(0, max(len(column) - 1, 0)))
    return column.slice(start)


@USUAL
@given(columns())
def test_a_column_is_hashed_like_its_values(column):
    assert hash_column(column).tolist() == [stable_hash(value) for value in column.to_pylist()]


@USUAL
@given(columns())
def test_a_dictionary_is_hashed_like_the_values_it_stands_for(column):
    if pa.types.is_string_view(column.type):
        column = column.cast(pa.string())
    assert hash_column(column.dictionary_encode()).tolist() == hash_column(column).tolist()


@USUAL
@given(st.lists(columns(least=1), min_size=1, max_size=3))
def test_columns_side_by_side_are_hashed_like_tuples(drawn):
    length = min(map(len, drawn))
    sides = [column.slice(0, length) for column in drawn]
    rows = list(zip(*(column.to_pylist() for column in sides), strict=True))
    assert hash_columns(sides).tolist() == [stable_hash(row) for row in rows]


_scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=5)
    | st.binary(max_size=5)
    | st.dates()
    | st.decimals(allow_nan=False, allow_infinity=False)
    | st.uuids()
)
KEYS = st.recursive(_scalars, lambda parts: st.lists(parts, max_size=3).map(tuple), max_leaves=4)


@USUAL
@given(
    st.sampled_from([1, 100]),
    st.lists(KEYS, max_size=5)
    | st.lists(st.text(alphabet=st.characters(), max_size=4), max_size=5)
    | st.lists(st.integers(-(2**65), 2**65), max_size=5)
    | st.lists(st.tuples(st.text(max_size=3), st.none() | st.integers()), max_size=5),
)
def test_lists_of_values_are_hashed_one_like_the_other(times, values):
    keys = values * times
    assert hash_values(keys).tolist() == [stable_hash(key) for key in keys]


@USUAL
@given(st.lists(KEYS, min_size=2, max_size=2), KEYS)
def test_keys_that_are_equal_have_equal_hashes(pair, other):
    for one in (*pair, other):
        for another in (*pair, other):
            if one == another:
                assert stable_hash(one) == stable_hash(another)


FIELDS = {
    Types.STRING(): st.text(max_size=15),
    Types.INT(): st.integers(-(2**31), 2**31 - 1),
    Types.LONG(): INTEGERS[pa.int64()],
    Types.FLOAT(): st.floats(width=32),
    Types.DOUBLE(): st.floats(),
    Types.BOOLEAN(): st.booleans(),
    Types.BIG_INT(): st.integers(),
    Types.BIG_DEC(): st.decimals(allow_nan=False, allow_infinity=False),
    Types.SQL_DATE(): st.dates(),
    Types.SQL_TIMESTAMP(): st.datetimes(),
    Types.INSTANT(): st.builds(Instant, st.integers(-(10**9), 10**9), st.integers(0, 999_999_999)),
    Types.PRIMITIVE_ARRAY(Types.BYTE()): st.binary(max_size=15),
}


@USUAL
@given(st.data())
def test_the_sender_and_the_owner_of_a_key_agree_on_its_hash(data):
    """The sender hashes columns; the owner sees values, and hashes them when it is rescaled."""
    kinds = data.draw(st.lists(st.sampled_from(list(FIELDS)), min_size=1, max_size=2))
    type_info = Types.TUPLE(kinds)
    format = arrow_format(type_info)
    record = st.tuples(*(st.none() | FIELDS[kind] for kind in kinds))
    records = data.draw(st.lists(record, max_size=5)) * data.draw(st.sampled_from([1, 30]))
    fields = data.draw(st.just(0) | st.just(tuple(range(len(kinds)))))
    key = select_key(fields, type_info)
    sent = Batch.of_records(records, format)
    hashes = key.hashes(sent).tolist()
    arrived = Batch.of_columns(sent.columns, format)
    assert [stable_hash(value) for value in key.values(arrived)] == hashes
    assert [stable_hash(key.function(record)) for record in arrived.records] == hashes


def test_a_decimal_with_more_digits_than_the_context_keeps_is_hashed_by_all_of_them():
    one, other = Decimal("0." + "1" * 60), Decimal("0." + "1" * 59 + "2")
    assert stable_hash(one) != stable_hash(other)
