"""The fields that a join selects, as in `select(user=left("user"), price=right("price"))`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from tidegate.core.errors import GraphError
from tidegate.operators.functions import Function
from tidegate.operators.joins.functions import JoinFunction, ProcessJoinFunction
from tidegate.operators.runtime_context import RuntimeContext
from tidegate.state.keys.key_index import can_be_indexed
from tidegate.state.keys.selection import KeySelection
from tidegate.state.keys.selectors import field_getter, field_position
from tidegate.types.arrow import ArrowFormat, arrow_format
from tidegate.types.row import make_rows, row_class
from tidegate.types.typeinfo import CompositeTypeInfo, RowTypeInfo, TypeInformation

_LEFT, _RIGHT = 0, 1


@dataclass(frozen=True, slots=True)
class JoinedField:
    """A field of the left or the right record of a pair."""

    side: int
    field: int | str


def left(field: int | str = 0) -> JoinedField:
    """A field of the record of the first stream."""
    return JoinedField(_LEFT, field)


def right(field: int | str = 0) -> JoinedField:
    """A field of the record of the second stream."""
    return JoinedField(_RIGHT, field)


@dataclass(frozen=True, slots=True)
class SelectedFields:
    """How two records become a result of a join. Picklable."""

    fields: Mapping[str, JoinedField]
    """By name; positions if the type of the records is known."""
    types: tuple[TypeInformation | None, TypeInformation | None]
    """The types of the records of both streams."""
    output_type: TypeInformation | None
    """The type of the results; None: unknown."""

    def getters(self) -> list[tuple[int, Callable[[Any], Any]]]:
        """The side of each field, and a function that selects it from a record."""
        return [
            (each.side, field_getter(each.field, self.types[each.side]))
            for each in self.fields.values()
        ]

    def columns(self, side: int) -> list[int]:
        """The selected columns of a side, ascending; positions must be known."""
        return sorted({int(each.field) for each in self.fields.values() if each.side == side})


def select_fields(
    fields: Mapping[str, Any], types: tuple[TypeInformation | None, TypeInformation | None]
) -> SelectedFields:
    """The selection of `select` on streams of these types.

    Raises:
        MissingField: a type has no such field.
        GraphError: the selection is empty, or contains something other than fields.
    """
    if not fields:
        raise GraphError("select() without fields: give some, such as select(id=left('id'))")
    found: dict[str, JoinedField] = {}
    kinds: list[TypeInformation | None] = []
    for name, each in fields.items():
        if not isinstance(each, JoinedField):
            raise GraphError(
                f"select({name}={each!r}): expected left() or right() of tidegate.datastream.joins"
            )
        held = types[each.side]
        field = each.field if held is None else field_position(each.field, held)
        found[name] = JoinedField(each.side, field)
        if isinstance(held, CompositeTypeInfo):
            held = held.get_field_types()[int(field)]
        kinds.append(held)
    known = [kind for kind in kinds if kind is not None]
    output = RowTypeInfo(known, list(found)) if len(known) == len(kinds) else None
    return SelectedFields(found, types, output)


@dataclass(frozen=True, slots=True)
class ColumnarSelection:
    """A selection that can be computed on columns."""

    selected: SelectedFields
    key_columns: tuple[int | tuple[int, ...], int | tuple[int, ...]]
    formats: tuple[ArrowFormat, ArrowFormat]
    output_format: ArrowFormat


def columnar_selection(
    selected: SelectedFields, keys: tuple[KeySelection, KeySelection]
) -> ColumnarSelection | None:
    """The selection on columns; None: the join runs by record, because a type is not columnar."""
    first, second = (arrow_format(each) for each in selected.types)
    output = arrow_format(selected.output_type)
    ours, theirs = (key.columns for key in keys)
    if first is None or second is None or output is None or ours is None or theirs is None:
        return None
    kinds = [
        [format.schema.field(place).type for place in _positions(columns)]
        for format, columns in ((first, ours), (second, theirs))
    ]
    if kinds[0] != kinds[1] or isinstance(ours, tuple) is not isinstance(theirs, tuple):
        return None
    if not can_be_indexed(kinds[0]):
        return None
    return ColumnarSelection(selected, (ours, theirs), (first, second), output)


def _positions(columns: int | tuple[int, ...]) -> tuple[int, ...]:
    return (columns,) if isinstance(columns, int) else columns


class _PairRows(Function):
    """Builds rows from two records."""

    def __init__(self, selected: SelectedFields) -> None:
        self._selected = selected

    def open(self, runtime_context: RuntimeContext) -> None:
        self._row = row_class(tuple(self._selected.fields))
        self._getters = self._selected.getters()

    def row(self, *pair: Any) -> Any:
        values = tuple([getter(pair[side]) for side, getter in self._getters])
        (row,) = make_rows(self._row, [values])
        return row


class SelectedInInterval(_PairRows, ProcessJoinFunction[Any, Any, Any]):
    def process_element(
        self, left: Any, right: Any, ctx: ProcessJoinFunction.Context
    ) -> Iterable[Any]:
        return (self.row(left, right),)


class SelectedInWindow(_PairRows, JoinFunction[Any, Any, Any]):
    def join(self, first: Any, second: Any) -> Any:
        return self.row(first, second)
