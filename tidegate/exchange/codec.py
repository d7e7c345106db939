"""Encodes stream elements as bytes.

    element = kind (1 byte) · length (8 bytes, big endian) · payload

Columnar batches are Arrow IPC messages: without a schema if it is that of the edge, which both ends
know; otherwise as a stream with schema and dictionaries. Everything else is pickled.
"""

from __future__ import annotations

import io
import pickle
import struct
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidegate.core.errors import InternalError, NotSerializable, shorten
from tidegate.stream.batch import Batch
from tidegate.stream.elements import StreamElement
from tidegate.types.arrow import ArrowFormat
from tidegate.types.privacy import ATOMIC

Bytes = bytes | memoryview
_PREFIX = struct.Struct(">BQ")
_COLUMNS, _COLUMNS_WITH_SCHEMA, _RECORDS, _CONTROL, _TIMESTAMPS = range(5)


def encode(element: StreamElement) -> bytes:
    """Encode one element, see `encoded_parts`."""
    return b"".join(encoded_parts(element))


def encoded_parts(element: StreamElement) -> list[Bytes]:
    """Encode one element in parts, so that they need not be copied to be joined.

    Raises:
        NotSerializable: a record cannot be pickled.
        TypeMismatch: a record is not of the stream's type.
    """
    if not isinstance(element, Batch):
        return _framed(_CONTROL, pickle.dumps(element, protocol=5))
    body = _encode_columns(element) if element.format is not None else _encode_records(element)
    if element.timestamps is None:
        return body
    return _framed(_TIMESTAMPS, element.timestamps.astype("<i8").tobytes()) + body


def _framed(kind: int, payload: Bytes) -> list[Bytes]:
    return [_PREFIX.pack(kind, len(payload)), payload]


def _encode_columns(batch: Batch) -> list[Bytes]:
    columns = batch.columns
    assert batch.format is not None
    if columns.schema.equals(batch.format.schema):
        return _framed(_COLUMNS, memoryview(columns.serialize()))
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, columns.schema) as writer:
        writer.write_batch(columns)
    return _framed(_COLUMNS_WITH_SCHEMA, memoryview(sink.getvalue()))


def _encode_records(batch: Batch) -> list[Bytes]:
    try:
        return _framed(_RECORDS, pickle.dumps(batch.records, protocol=5))
    except Exception as failure:
        raise NotSerializable(f"record {_first_unpicklable(batch)}", str(failure)) from failure


def _first_unpicklable(batch: Batch) -> str:
    for record in batch.records:
        try:
            pickle.dump(record, io.BytesIO(), protocol=5)
        except Exception:
            return shorten(record)
    return "<unknown>"


def decode(
    data: bytes | bytearray | memoryview, format: ArrowFormat | None
) -> Iterator[StreamElement]:
    """Decode concatenated elements, which share the edge's format."""
    view = memoryview(data)
    position = 0
    timestamps = None
    while position < len(view):
        kind, length = _PREFIX.unpack_from(view, position)
        start = position + _PREFIX.size
        position = start + length
        payload = view[start:position]
        if kind == _TIMESTAMPS:
            timestamps = np.frombuffer(payload, dtype="<i8")
        elif kind == _CONTROL:
            yield pickle.loads(payload)
        else:
            yield _decode_batch(kind, payload, format, timestamps)
            timestamps = None


def _decode_batch(
    kind: int,
    payload: memoryview,
    format: ArrowFormat | None,
    timestamps: npt.NDArray[np.int64] | None,
) -> Batch:
    columns = records = None
    is_inert = False
    if kind == _RECORDS:
        unpickler = _Unpickler(io.BytesIO(payload))
        records, is_inert = unpickler.load(), unpickler.is_inert
    elif kind == _COLUMNS:
        assert format is not None
        columns = pa.ipc.read_record_batch(pa.py_buffer(payload), format.schema)
    elif kind == _COLUMNS_WITH_SCHEMA:
        columns = pa.ipc.open_stream(pa.py_buffer(payload)).read_next_batch()
    else:
        raise InternalError(f"a packet contains an element of the unknown kind {kind}")
    return Batch(
        columns=columns, records=records, format=format, timestamps=timestamps, is_inert=is_inert
    )


class _Unpickler(pickle.Unpickler):
    """Detects references to classes: without any, all values are of Python's built-in types."""

    is_inert = True

    def find_class(self, module: str, name: str) -> Any:
        found = super().find_class(module, name)
        self.is_inert &= isinstance(found, type) and found in ATOMIC
        return found
