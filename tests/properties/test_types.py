"""Records of every type survive as columns, as bytes, in slices, and in combination."""

import pickle
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.effort import examples
from tests.properties.type_strategies import (
    record_types,
    same,
    single_types,
    typed_records,
    types,
    values_of,
)
from tidegate.core.errors import TypeMismatch, shorten
from tidegate.types.arrow import ArrowFormat, arrow_format
from tidegate.types.infer import typed_schema_from_arrow
from tidegate.types.row import Row
from tidegate.types.spark import to_spark_schema, type_info_of_spark
from tidegate.types.typeinfo import TypeInformation, Types

# The duration of an example depends more on other load of the machine than on the code.
USUAL = examples()
FEW = examples(15)


def format_of(type_info: TypeInformation) -> ArrowFormat:
    format = arrow_format(type_info)
    assert format is not None
    return format


@USUAL
@given(typed_records())
def test_records_come_back_as_they_were(typed):
    type_info, records = typed
    format = format_of(type_info)
    batch = format.encode(records)
    batch.validate(full=True)
    assert batch.schema == format.schema
    assert same(format.decode(batch), records)


@FEW
@given(typed_records())
def test_records_come_back_from_bytes(typed):
    type_info, records = typed
    format = format_of(type_info)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, format.schema) as writer:
        writer.write_batch(format.encode(records))
    (batch,) = pa.ipc.open_stream(sink.getvalue())
    assert same(format.decode(batch), records)


@FEW
@given(typed_records(), st.data())
def test_a_slice_of_a_batch_holds_the_slice_of_the_records(typed, data):
    type_info, records = typed
    format = format_of(type_info)
    start = data.draw(st.integers(0, len(records)))
    stop = data.draw(st.integers(start, len(records)))
    assert same(format.decode(format.encode(records)[start:stop]), records[start:stop])


@FEW
@given(typed_records(), st.data())
def test_taken_records_are_those_at_the_indices(typed, data):
    type_info, records = typed
    format = format_of(type_info)
    indices = data.draw(
        st.lists(st.integers(0, len(records) - 1), max_size=5) if records else st.just([])
    )
    taken = format.encode(records).take(pa.array(indices, pa.int64()))
    assert same(format.decode(taken), [records[i] for i in indices])


@FEW
@given(typed_records(), st.integers(0, 5))
def test_records_encoded_apart_are_those_encoded_together(typed, cut):
    type_info, records = typed
    format = format_of(type_info)
    parts = [format.encode(records[:cut]), format.encode(records[cut:])]
    assert same(format.decode(pa.concat_batches(parts)), records)


@USUAL
@given(typed_records(record_types(single_types())))
def test_a_dictionary_encoded_batch_holds_the_same_records(typed):
    type_info, records = typed
    format = format_of(type_info)
    batch = format.encode(records)
    columns = [
        column if pa.types.is_nested(column.type) else column.dictionary_encode()
        for column in batch.columns
    ]
    encoded = pa.RecordBatch.from_arrays(columns, names=batch.schema.names)
    assert same(format.decode(encoded), records)
    assert format.conform(encoded) == batch


@USUAL
@given(types())
def test_types_and_formats_survive_pickling(type_info):
    clone = pickle.loads(pickle.dumps(type_info))
    assert clone == type_info
    assert hash(clone) == hash(type_info)
    assert repr(clone) == repr(type_info)
    assert pickle.loads(pickle.dumps(format_of(type_info))) == format_of(clone)


@FEW
@given(typed_records(), types())
def test_equal_formats_read_each_others_batches(typed, other):
    type_info, records = typed
    for twin in (other, pickle.loads(pickle.dumps(type_info))):
        if format_of(twin) == format_of(type_info):
            batch = format_of(type_info).encode(records)
            assert same(format_of(twin).decode(batch), records)
            assert hash(format_of(twin)) == hash(format_of(type_info))


@USUAL
@given(record_types(types()))
def test_the_schema_of_a_format_means_rows_with_the_same_columns(type_info):
    format = format_of(type_info)
    assert format_of(typed_schema_from_arrow(format.schema)).schema == format.schema


@USUAL
@given(record_types(types()))
def test_a_spark_schema_comes_back_unchanged(type_info):
    schema = to_spark_schema(type_info)
    assert to_spark_schema(type_info_of_spark(schema)) == schema


INTEGERS = {"BYTE": 8, "SHORT": 16, "INT": 32, "LONG": 64}


@USUAL
@given(st.sampled_from(sorted(INTEGERS)), st.integers(-(2**65), 2**65))
def test_an_integer_is_kept_or_refused_but_never_changed(name, number):
    format = format_of(getattr(Types, name)())
    limit = 1 << INTEGERS[name] - 1
    if -limit <= number < limit:
        assert format.decode(format.encode([number])) == [number]
    else:
        with pytest.raises(TypeMismatch, match=f"outside the range of Types.{name}"):
            format.encode([number])


@USUAL
@given(st.floats())
def test_a_float_is_an_integer_only_where_it_is_whole(number):
    format = format_of(Types.BIG_INT())
    if number.is_integer() and abs(number) < 10**76:
        assert format.decode(format.encode([number])) == [number]
    else:
        with pytest.raises(TypeMismatch):
            format.encode([number])


@USUAL
@given(
    st.sampled_from([np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint32]),
    st.integers(0, 127),
)
def test_numpy_integers_are_integers(numpy_type, number):
    for name in INTEGERS:
        format = format_of(getattr(Types, name)())
        assert format.decode(format.encode([numpy_type(number), 1])) == [number, 1]


SOMETHING = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(allow_nan=False),
    st.text(max_size=4),
    st.binary(max_size=4),
    st.dates(),
    st.datetimes(),
    st.lists(st.integers(), max_size=2),
    st.dictionaries(st.text(max_size=2), st.integers(), max_size=2),
    st.tuples(st.integers(), st.text(max_size=2)),
    st.builds(Row, st.integers(), st.text(max_size=2)),
)


@USUAL
@given(types(), SOMETHING, st.data())
def test_a_record_of_another_type_is_converted_or_named_in_an_error(type_info, stranger, data):
    format = format_of(type_info)
    records: list[Any] = data.draw(st.lists(values_of(type_info), max_size=3))
    place = data.draw(st.integers(0, len(records)))
    mixed = [*records[:place], stranger, *records[place:]]
    failure = None
    try:
        decoded = format.decode(format.encode(mixed))
    except TypeMismatch as caught:
        failure = caught
    if failure is None:
        assert same(decoded[:place] + decoded[place + 1 :], records)
    else:
        assert failure.args[:2] == (str(type_info), shorten(stranger))
        assert pickle.loads(pickle.dumps(failure)).args == failure.args


ROW_VALUES = st.integers() | st.text(max_size=3) | st.none()


@USUAL
@given(st.dictionaries(st.text(max_size=5), ROW_VALUES, min_size=1, max_size=4), st.randoms())
def test_rows_are_equal_by_name_whatever_the_order(fields, random):
    names = list(fields)
    random.shuffle(names)
    shuffled = Row(**{name: fields[name] for name in names})
    assert shuffled == Row(**fields)
    assert hash(shuffled) == hash(Row(**fields))
    assert pickle.loads(pickle.dumps(shuffled)) == shuffled
    assert shuffled.as_dict() == fields
    assert all(shuffled[name] == value for name, value in fields.items())
