"""Strategies shared by property tests: records, batches, elements, partitionings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

from tidegate.core.modes import CheckpointingMode
from tidegate.stream.batch import Batch
from tidegate.stream.elements import (
    Barrier,
    BarrierKind,
    EndOfInput,
    StreamElement,
    Watermark,
    WatermarkStatus,
)
from tidegate.types.arrow import ArrowFormat, arrow_format
from tidegate.types.row import Row
from tidegate.types.typeinfo import TypeInformation, Types

LONG = st.integers(-(2**63), 2**63 - 1)


@dataclass
class Reading:
    """A record of a dataclass."""

    sensor: str
    value: float


class Point(NamedTuple):
    """A record of a named tuple."""

    x: int
    y: int


class TypedRecords(NamedTuple):
    """A type with matching records."""

    type_info: TypeInformation
    records: st.SearchStrategy[Any]


def typed_records() -> list[TypedRecords]:
    finite = st.floats(allow_nan=False)
    return [
        TypedRecords(Types.LONG(), LONG),
        TypedRecords(Types.STRING(), st.none() | st.text()),
        TypedRecords(Types.DOUBLE(), finite),
        TypedRecords(Types.BOOLEAN(), st.booleans()),
        TypedRecords(Types.TUPLE([Types.STRING(), Types.LONG()]), st.tuples(st.text(), LONG)),
        TypedRecords(
            Types.ROW_NAMED(["word", "count"], [Types.STRING(), Types.LONG()]),
            st.builds(lambda word, count: Row(word=word, count=count), st.text(), LONG),
        ),
        TypedRecords(Types.LIST(Types.LONG()), st.lists(LONG, max_size=3)),
        TypedRecords(
            Types.MAP(Types.STRING(), Types.DOUBLE()),
            st.dictionaries(st.text(), finite, max_size=3),
        ),
    ]


def untyped_records() -> st.SearchStrategy[Any]:
    """Anything that can be pickled and compared."""
    return st.one_of(
        st.none(),
        st.integers(),
        st.text(),
        st.binary(),
        st.tuples(st.text(), st.integers()),
        st.builds(Reading, st.text(), st.floats(allow_nan=False)),
        st.builds(Point, st.integers(), st.integers()),
        st.dictionaries(st.text(), st.integers(), max_size=3),
    )


@st.composite
def batches(draw: st.DrawFn, typed: TypedRecords | None, max_size: int = 12) -> Batch:
    """Records or columns, plain or dictionary-encoded, whole or a slice, with or without times."""
    records = draw(
        st.lists(untyped_records() if typed is None else typed.records, max_size=max_size)
    )
    format = None if typed is None else arrow_format(typed.type_info)
    stamps = None
    if draw(st.booleans()):
        stamps = np.array(draw(st.lists(LONG, min_size=len(records), max_size=len(records))))
        stamps = stamps.astype(np.int64)
    batch = Batch(records=records, format=format, timestamps=stamps)
    if format is not None and draw(st.booleans()):
        columns = batch.columns
        if draw(st.booleans()):
            columns = in_dictionaries(columns)
        batch = Batch(columns=columns, format=format, timestamps=stamps)
    start = draw(st.integers(0, len(records)))
    if draw(st.booleans()):
        batch = batch.slice(start, draw(st.integers(start, len(records))))
    return batch


def in_dictionaries(columns: pa.RecordBatch) -> pa.RecordBatch:
    """The same columns, with text and numbers dictionary-encoded."""
    arrays = [
        array if pa.types.is_nested(array.type) else array.dictionary_encode()
        for array in columns.columns
    ]
    return pa.RecordBatch.from_arrays(arrays, names=columns.schema.names)


def barriers() -> st.SearchStrategy[Barrier]:
    return st.builds(
        Barrier,
        st.integers(1, 2**40),
        st.floats(0, 2e9),
        st.sampled_from(BarrierKind),
        st.sampled_from(CheckpointingMode),
        st.none() | st.integers(1, 2**40),
    )


@st.composite
def channels(draw: st.DrawFn) -> tuple[ArrowFormat | None, list[StreamElement]]:
    """Possible elements of one channel, with the format of its edge."""
    typed = draw(st.none() | st.sampled_from(typed_records()))
    elements = st.one_of(
        batches(typed),
        st.builds(Watermark, LONG),
        st.sampled_from(WatermarkStatus),
        barriers(),
        st.just(EndOfInput()),
    )
    format = None if typed is None else arrow_format(typed.type_info)
    return format, draw(st.lists(elements, max_size=6))


def as_plain(element: StreamElement) -> Any:
    """An element in a comparable form."""
    if not isinstance(element, Batch):
        return element
    stamps = None if element.timestamps is None else element.timestamps.tolist()
    return element.format, element.records, stamps
