"""Converts nested Python values (records, lists, maps) to an Arrow column and back."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import chain, islice, pairwise
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidegate.types.columns import ColumnCodec, Unfit, require
from tidegate.types.records import RecordShape

Absent: TypeAlias = npt.NDArray[np.bool_] | None
Decode: TypeAlias = "Callable[[pa.Array[Any]], list[Any]]"


class StructCodec(ColumnCodec):
    """A record inside a record."""

    is_immutable = False

    def __init__(self, shape: RecordShape, fields: Sequence[ColumnCodec]) -> None:
        self.shape = shape
        self.fields = tuple(fields)
        self.arrow_fields = [
            pa.field(name, field.arrow_type)
            for name, field in zip(shape.names, fields, strict=True)
        ]
        self.arrow_type = pa.struct(self.arrow_fields)
        self.layout = ("struct", shape.layout, *(field.layout for field in fields))

    def encode(self, values: Sequence[Any]) -> pa.Array[Any]:
        absent = absent_in(values)
        if absent is None:
            return pa.StructArray.from_arrays(self.encode_fields(values), fields=self.arrow_fields)
        present = self.shape.split([value for value in values if value is not None])
        columns = [spread(column, absent) for column in present]
        return pa.StructArray.from_arrays(
            self._encode_columns(columns), fields=self.arrow_fields, mask=pa.array(absent)
        )

    def encode_fields(self, values: Sequence[Any]) -> list[pa.Array[Any]]:
        """Return one column for each field; None is not a record here."""
        return self._encode_columns(self.shape.split(values))

    def _encode_columns(self, columns: list[list[Any]]) -> list[pa.Array[Any]]:
        encoded = []
        for name, codec, column in zip(self.shape.names, self.fields, columns, strict=True):
            try:
                encoded.append(codec.encode(column))
            except Unfit as unfit:
                raise Unfit(f"field {name!r}: {unfit}") from None
        return encoded

    def decode(self, column: pa.Array[Any]) -> list[Any]:
        assert isinstance(column, pa.StructArray)
        records = self.decode_fields([column.field(i) for i in range(len(self.fields))], {})
        return with_none(records, column)

    def decode_fields(
        self, columns: Sequence[pa.Array[Any]], known: Mapping[int, list[Any]]
    ) -> list[Any]:
        """Return the records whose fields are `columns`; some may be `known`, by position."""
        return self.shape.join(
            [
                known[position] if position in known else codec.decode_any(column)
                for position, (codec, column) in enumerate(zip(self.fields, columns, strict=True))
            ]
        )


class ListCodec(ColumnCodec):
    """A list; tuples and numpy arrays become lists."""

    is_immutable = False

    def __init__(self, element: ColumnCodec, *, none_is_an_element: bool) -> None:
        self.element = element
        self.arrow_type = pa.list_(element.arrow_type)
        self.layout = ("list", none_is_an_element, element.layout)
        self._none_is_an_element = none_is_an_element

    def encode(self, values: Sequence[Any]) -> pa.Array[Any]:
        require(values, (list, tuple, np.ndarray), "a list")
        absent = absent_in(values)
        present = values if absent is None else [() if v is None else v for v in values]
        try:
            elements = self.element.encode(list(chain.from_iterable(present)))
        except Unfit as unfit:
            raise Unfit(f"an element of the list: {unfit}") from None
        if elements.null_count and not self._none_is_an_element:
            raise Unfit("an element of a primitive array is None: declare Types.BASIC_ARRAY")
        return column_of_lists(present, elements, absent)

    def decode(self, column: pa.Array[Any]) -> list[Any]:
        return decoded_lists(column, self.element.decode_any)


class MapCodec(ColumnCodec):
    """A dict, in its order."""

    is_immutable = False

    def __init__(self, key: ColumnCodec, value: ColumnCodec) -> None:
        self.key = key
        self.value = value
        self.arrow_type = pa.map_(key.arrow_type, value.arrow_type)
        self.layout = ("map", key.layout, value.layout)

    def encode(self, values: Sequence[Any]) -> pa.Array[Any]:
        require(values, dict, "a dict")
        absent = absent_in(values)
        present: Sequence[dict[Any, Any]]
        present = values if absent is None else [{} if v is None else v for v in values]
        try:
            keys = self.key.encode(list(chain.from_iterable(present)))
        except Unfit as unfit:
            raise Unfit(f"a key of the dict: {unfit}") from None
        if keys.null_count:
            raise Unfit("a key of the dict is None")
        try:
            items = self.value.encode(list(chain.from_iterable(d.values() for d in present)))
        except Unfit as unfit:
            raise Unfit(f"a value of the dict: {unfit}") from None
        return column_of_maps(present, keys, items, absent)

    def decode(self, column: pa.Array[Any]) -> list[Any]:
        return decoded_maps(column, self.key.decode_any, self.value.decode_any)


# --- what codecs of streams and shapes of stored state share --------------------------------------


def column_of_lists(
    lists: Sequence[Any], elements: pa.Array[Any], absent: Absent
) -> pa.ListArray[Any]:
    return pa.ListArray.from_arrays(_offsets_of(lists), elements, mask=mask_of(absent))


def decoded_lists(column: pa.Array[Any], decode: Decode) -> list[Any]:
    assert isinstance(column, pa.ListArray)
    offsets, first, last = _decoded_offsets(column)
    elements = decode(column.values.slice(first, last - first))
    return with_none([elements[a:b] for a, b in pairwise(offsets)], column)


def column_of_maps(
    maps: Sequence[dict[Any, Any]], keys: pa.Array[Any], items: pa.Array[Any], absent: Absent
) -> pa.Array[Any]:
    return pa.MapArray.from_arrays(  # type: ignore[call-overload,no-any-return]
        _offsets_of(maps), keys, items, mask=mask_of(absent)
    )


def decoded_maps(column: pa.Array[Any], decode_key: Decode, decode_value: Decode) -> list[Any]:
    assert isinstance(column, pa.MapArray)
    offsets, first, last = _decoded_offsets(column)
    keys = decode_key(column.keys.slice(first, last - first))
    items = decode_value(column.items.slice(first, last - first))
    entries = zip(keys, items, strict=True)
    return with_none([dict(islice(entries, b - a)) for a, b in pairwise(offsets)], column)


def absent_in(values: Sequence[Any]) -> Absent:
    """Marks each None; None if there are none."""
    if type(None) not in set(map(type, values)):
        return None
    return np.fromiter((value is None for value in values), np.bool_, len(values))


def spread(column: Sequence[Any], absent: npt.NDArray[np.bool_]) -> list[Any]:
    """The values, with None where one is absent."""
    values = iter(column)
    return [None if missing else next(values) for missing in absent.tolist()]


def mask_of(absent: Absent) -> pa.BooleanArray | None:
    return None if absent is None else pa.array(absent)


def _offsets_of(values: Sequence[Any]) -> pa.Int32Array:
    """The start of each list in their concatenation."""
    offsets = np.zeros(len(values) + 1, np.int32)
    np.cumsum(np.fromiter(map(len, values), np.int32, len(values)), out=offsets[1:])
    return pa.array(offsets, pa.int32())


def _decoded_offsets(
    column: pa.ListArray[Any] | pa.MapArray[Any, Any],
) -> tuple[list[int], int, int]:
    """The offsets relative to the first, the first and the last."""
    offsets = column.offsets.to_numpy()
    first, last = int(offsets[0]), int(offsets[-1])
    return (offsets - first).tolist(), first, last


def with_none(values: list[Any], column: pa.Array[Any]) -> list[Any]:
    """The values, None where the column is null."""
    if column.null_count:
        absent = column.is_null().to_numpy(zero_copy_only=False)
        for position in np.flatnonzero(absent).tolist():
            values[position] = None
    return values
