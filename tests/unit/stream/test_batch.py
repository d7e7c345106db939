"""Batches that become one, and those that cannot."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidegate.stream.batch import NO_TIMESTAMP, Batch
from tidegate.types.arrow import arrow_format
from tidegate.types.row import Row
from tidegate.types.typeinfo import Types

TEXTS = arrow_format(Types.STRING())


def batch_of(texts, first, *, columnar):
    stamps = np.arange(first, first + len(texts))
    if columnar:
        return Batch(columns=TEXTS.encode(texts), format=TEXTS, timestamps=stamps)
    return Batch(records=texts, format=TEXTS, timestamps=stamps)


@settings(deadline=None)
@given(
    parts=st.lists(st.tuples(st.integers(0, 5), st.booleans()), max_size=8),
    most_bytes=st.integers(0, 200),
)
def test_joined_batches_hold_every_record_in_order_whatever_fits_into_one(parts, most_bytes):
    first, batches = 0, []
    for size, columnar in parts:
        texts = [f"text {number}" for number in range(first, first + size)]
        batches.append(batch_of(texts, first, columnar=columnar))
        first += size
    joined = Batch.joined(batches, most_bytes)
    assert [text for batch in joined for text in batch.records] == [
        f"text {number}" for number in range(first)
    ]
    assert [stamp for batch in joined for stamp in batch.timestamps] == list(range(first))


def test_records_keep_their_timestamps_beside_records_without():
    timed = Batch(records=["timed"], timestamps=np.array([5]))
    (joined,) = Batch.joined([timed, Batch.of_records(["untimed"])])
    assert joined.timestamps.tolist() == [5, NO_TIMESTAMP]
    (untimed,) = Batch.joined([Batch.of_records([1]), Batch.of_records([2])])
    assert untimed.timestamps is None


def test_columns_are_joined_up_to_the_size_that_is_allowed():
    batches = [batch_of(["x" * 100], number, columnar=True) for number in range(5)]
    joined = Batch.joined(batches, 2 * batches[0].columns.nbytes)
    assert [len(batch) for batch in joined] == [2, 2, 1]
    assert [len(batch) for batch in Batch.joined(batches)] == [5]


def test_what_is_larger_than_allowed_stays_as_it_is():
    large = batch_of(["x" * 100], 1, columnar=True)
    small = batch_of(["y"], 2, columnar=True)
    assert [len(each) for each in Batch.joined([small, large, small], 50)] == [1, 1, 1]


def test_columns_in_another_encoding_than_that_of_their_format_stay_as_they_are():
    plain = batch_of(["x"], 0, columnar=True)
    encoded = [
        Batch(columns=dictionary_of([f"{number} {i}" for i in range(100)]), format=TEXTS)
        for number in range(2)
    ]
    joined = Batch.joined([plain, plain, *encoded])
    assert [len(batch) for batch in joined] == [2, 100, 100]
    assert joined[-1].records[-1] == "1 99"


def dictionary_of(texts):
    column = pa.array(texts).cast(pa.dictionary(pa.int8(), pa.string()))
    return pa.RecordBatch.from_arrays([column], names=TEXTS.schema.names)


@pytest.mark.parametrize("columnar", [True, False])
def test_rows_with_other_names_of_fields_stay_separate(columnar):
    batches = []
    for names in (["a", "b"], ["b", "a"], ["b", "a"]):
        format = arrow_format(Types.ROW_NAMED(names, [Types.LONG(), Types.LONG()]))
        batches.append(Batch.of_records([Row(**dict(zip(names, (1, 2), strict=True)))], format))
        if columnar:
            batches[-1] = Batch.of_columns(batches[-1].columns, format)
    joined = Batch.joined(batches)
    assert [batch.format for batch in joined] == [batches[0].format, batches[1].format]
    assert [batch.columns.to_pylist() for batch in joined] == [
        [{"a": 1, "b": 2}],
        [{"b": 1, "a": 2}] * 2,
    ]
