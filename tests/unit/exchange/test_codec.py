import threading

import numpy as np
import pyarrow as pa
import pytest

from tidegate.core.errors import InternalError, NotSerializable, TypeMismatch
from tidegate.exchange.codec import decode, encode
from tidegate.stream.batch import Batch
from tidegate.stream.elements import EndOfInput, Watermark
from tidegate.types.arrow import arrow_format
from tidegate.types.typeinfo import Types

LONG = arrow_format(Types.LONG())
TEXT = arrow_format(Types.STRING())


def test_columns_travel_without_their_schema_where_both_ends_know_it():
    columns = LONG.encode([1, 2, 3])
    bare = encode(Batch.of_columns(columns, LONG))
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, columns.schema) as writer:
        writer.write_batch(columns)
    assert len(bare) < len(sink.getvalue())


def test_a_slice_of_a_large_batch_is_small():
    large = Batch.of_columns(LONG.encode(list(range(100_000))), LONG)
    assert len(encode(large.slice(500, 510))) < 1000


def test_dictionaries_stay_dictionaries():
    columns = pa.RecordBatch.from_arrays(
        [pa.array(["a", "b", "a"]).dictionary_encode()], names=["value"]
    )
    (arrived,) = decode(encode(Batch.of_columns(columns, TEXT)), TEXT)
    assert pa.types.is_dictionary(arrived.columns.column(0).type)
    assert arrived.records == ["a", "b", "a"]


def test_records_without_a_type_are_not_converted():
    record = object
    (arrived,) = decode(encode(Batch.of_records([record, None, 2**100])), None)
    assert not arrived.is_columnar
    assert arrived.records == [record, None, 2**100]


def test_timestamps_belong_to_the_batch_after_them_alone():
    stamped = Batch(records=["a"], timestamps=np.array([7]))
    first, control, second = decode(
        encode(stamped) + encode(Watermark(7)) + encode(Batch.of_records(["b"])), None
    )
    assert first.timestamps.tolist() == [7]
    assert control == Watermark(7)
    assert second.timestamps is None


def test_decoding_waits_until_an_element_is_asked_for():
    elements = decode(encode(EndOfInput()) + b"\xffgarbage behind it", None)
    assert next(elements) == EndOfInput()


def test_a_record_that_cannot_be_pickled_is_named():
    lock = threading.Lock()
    with pytest.raises(NotSerializable, match=r"record \('key', <unlocked .*lock"):
        encode(Batch.of_records([1, ("key", lock), 2]))


def test_a_record_of_another_type_is_named():
    with pytest.raises(TypeMismatch, match="record 'three' does not fit"):
        encode(Batch.of_records([1, 2, "three"], LONG))


def test_an_element_of_an_unknown_kind_is_a_fault_of_ours():
    with pytest.raises(InternalError, match="unknown kind 9"):
        list(decode(b"\x09" + bytes(8), None))
