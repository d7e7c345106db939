"""Converts columns to other types, unless that would change a value."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from tidegate.types.columns import is_binary, is_list, is_text

Column: TypeAlias = "pa.Array[Any]"


def cast_exactly(column: Column, kind: pa.DataType) -> Column:
    """The column as this type; floats may lose digits, but stay finite.

    Raises:
        pa.ArrowInvalid: A value would change, or the types mean different things, such as a number
            and a point in time.
        pa.ArrowNotImplementedError: Arrow has no such conversion.
    """
    if column.type == kind:
        return column
    column = _without_views(column.storage if isinstance(column, pa.ExtensionArray) else column)
    converted = column.cast(kind) if _may_become(column.type, kind) else _refuse(column.type, kind)
    for before, after in _parts(column, converted):
        _check(before, after)
    return converted


def _without_views(column: Column) -> Column:
    """Arrow cannot decode a dictionary of views, as in the categories of polars."""
    if not isinstance(column, pa.DictionaryArray):
        return column
    values: Column = column.dictionary
    if pa.types.is_string_view(values.type):
        values = values.cast(pa.large_string())
    elif pa.types.is_binary_view(values.type):
        values = values.cast(pa.large_binary())
    else:
        return column
    return pa.DictionaryArray.from_arrays(column.indices, values)


def _refuse(found: pa.DataType, kind: pa.DataType) -> Column:
    raise pa.ArrowInvalid(f"expected a column of type {kind}, found {found}")


def _may_become(found: Any, kind: Any) -> bool:
    """Whether values of one type may be values of the other, too."""
    is_ = pa.types
    if is_.is_dictionary(found):
        return _may_become(found.value_type, kind)
    if found == kind or is_.is_null(found):
        return True
    if is_text(kind):
        return is_text(found)
    if is_binary(kind):
        return is_binary(found)
    if _is_number(kind):
        return _is_number(found)
    if is_.is_date(kind):
        return is_.is_date(found) or (is_.is_timestamp(found) and found.tz is None)
    if is_.is_timestamp(kind):
        # Without its zone, a point in time would be another time of day.
        is_point = is_.is_timestamp(found) and (found.tz is None or kind.tz is not None)
        return is_point or (is_.is_date(found) and kind.tz is None)
    if is_.is_struct(kind):
        return is_.is_struct(found) and all(_has(found, field) for field in kind)
    if is_.is_map(kind):
        same = is_.is_map(found) and _may_become(found.key_type, kind.key_type)
        return same and _may_become(found.item_type, kind.item_type)
    if is_list(kind):
        return is_list(found) and _may_become(found.value_type, kind.value_type)
    if isinstance(kind, pa.BaseExtensionType):
        return _may_become(found, kind.storage_type)
    same_kinds = (is_.is_time, is_.is_duration)
    return any(is_same(found) and is_same(kind) for is_same in same_kinds)


def _is_number(kind: pa.DataType) -> bool:
    is_ = pa.types
    return (
        is_.is_integer(kind)
        or is_.is_floating(kind)
        or is_.is_decimal(kind)
        or is_.is_boolean(kind)
    )


def _has(struct: pa.StructType, field: pa.Field[Any]) -> bool:
    place = struct.get_field_index(field.name)
    if place < 0:
        raise pa.ArrowInvalid(f"the field {field.name!r} is missing in {struct}")
    return _may_become(struct.field(place).type, field.type)


def _parts(before: Any, after: Any) -> Iterator[tuple[Column, Column]]:
    """The single values in a column, before and after the conversion."""
    kind = after.type
    if before.type == kind or pa.types.is_null(before.type):
        return
    if pa.types.is_struct(kind):
        found = dict(zip((field.name for field in before.type), before.flatten(), strict=True))
        for field, part in zip(kind, after.flatten(), strict=True):
            yield from _parts(found[field.name], part)
    elif pa.types.is_map(kind):
        for part in ("keys", "items"):
            yield from _parts(_entries(before, part), _entries(after, part))
    elif is_list(kind):
        yield from _parts(before.flatten(), after.flatten())
    else:
        yield before, after


def _entries(maps: Any, part: str) -> Column:
    offsets = maps.offsets
    first, last = offsets[0].as_py(), offsets[-1].as_py()
    entries: Column = getattr(maps, part)
    return entries.slice(first, last - first)


def _check(before: Any, after: Column) -> None:
    """Check what Arrow does not."""
    is_ = pa.types
    found, kind = before.type, after.type
    if is_.is_dictionary(found):
        found = found.value_type
    if is_.is_floating(kind):
        infinite = pc.is_inf(after)
        if pc.any(infinite).as_py():
            given = pc.is_inf(before.cast(found)) if is_.is_floating(found) else None
            if given is None or not infinite.equals(given):
                raise pa.ArrowInvalid(f"a value is outside the range of {kind}")
    elif (
        (is_.is_boolean(kind) and not is_.is_boolean(found))
        or (is_.is_date(kind) and not is_.is_date(found))
        or (is_.is_decimal(kind) and is_.is_floating(found))
    ) and not after.cast(found, safe=False).equals(before.cast(found)):
        raise pa.ArrowInvalid(f"a value of type {found} would change as {kind}")
