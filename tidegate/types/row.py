"""`Row`: a record with or without field names, as in PyFlink."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from enum import Enum
from typing import Any, ClassVar, overload

__all__ = ["Row", "RowKind"]


class RowKind(Enum):
    """The change that a row represents."""

    INSERT = 0
    UPDATE_BEFORE = 1
    UPDATE_AFTER = 2
    DELETE = 3

    def __str__(self) -> str:
        return {"INSERT": "+I", "UPDATE_BEFORE": "-U", "UPDATE_AFTER": "+U", "DELETE": "-D"}[
            self.name
        ]


_INSERT = RowKind.INSERT  # a global is faster than an enum member


class Row:
    """A record whose fields are accessed by position and, if it has names, by name.

    >>> row = Row(name="Ada", age=36)
    >>> row.name, row["age"], row[1]
    ('Ada', 36, 36)
    >>> Row(1, "a")
    <Row(1, 'a')>

    A row of names creates rows with these names:

    >>> Person = Row("name", "age")
    >>> Person("Ada", 36)
    Row(name='Ada', age=36)
    """

    # Names and kind belong to a class that rows with the same names share (`row_class`): creating a
    # row is one assignment, and `row.name` is a property, six times faster than __getattr__. The
    # values are a tuple until a field is assigned.
    __slots__ = ("_values",)

    _fields: ClassVar[tuple[str, ...] | None] = None
    _row_kind: ClassVar[RowKind] = _INSERT
    _values: tuple[Any, ...] | list[Any]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        if kwargs:
            if args:
                raise ValueError("a Row takes positional or keyword arguments, not both")
            self.__class__ = row_class(tuple(kwargs), base=type(self))
            self._values = tuple(kwargs.values())
        else:
            self._values = args

    @staticmethod
    def of_kind(row_kind: RowKind, *args: Any, **kwargs: Any) -> Row:
        """A row of this kind."""
        row = Row(*args, **kwargs)
        row.set_row_kind(row_kind)
        return row

    def get_row_kind(self) -> RowKind:
        """The kind of change that the row represents."""
        return self._row_kind

    def set_row_kind(self, row_kind: RowKind) -> None:
        """Set the kind of change that the row represents."""
        self.__class__ = row_class(self._fields, row_kind, self._base())

    def set_field_names(self, field_names: Sequence[str]) -> None:
        """Name the fields."""
        if len(field_names) != len(self._values):
            raise ValueError(f"{len(field_names)} names for {len(self._values)} fields: {self!r}")
        self.__class__ = row_class(tuple(field_names), self._row_kind, self._base())

    def get_fields_by_names(self, names: Sequence[str]) -> list[Any]:
        """The values in the order of `names`; all values of a row without names."""
        fields = self._fields
        if fields is None or tuple(names) == fields:
            return list(self._values)
        unknown = [name for name in names if name not in fields]
        if unknown:
            raise ValueError(f"no field {', '.join(map(repr, unknown))} in {self!r}")
        return [self._values[fields.index(name)] for name in names]

    def as_dict(self, recursive: bool = False) -> dict[str, Any]:
        """The values by name; with `recursive`, also of nested rows, even in lists and dicts."""
        if self._fields is None:
            raise TypeError(f"a Row without field names cannot become a dict: {self!r}")
        values = map(_without_rows, self._values) if recursive else self._values
        return dict(zip(self._fields, values, strict=True))

    @overload
    def __getitem__(self, item: int | str) -> Any: ...
    @overload
    def __getitem__(self, item: slice) -> list[Any]: ...
    def __getitem__(self, item: int | str | slice) -> Any:
        if type(item) is int:
            return self._values[item]
        if isinstance(item, str):
            return self._values[self._position(item)]
        if isinstance(item, slice):
            return list(self._values[item])
        return self._values[item]

    def __setitem__(self, key: int | str | slice, value: Any) -> None:
        position = self._position(key) if isinstance(key, str) else key
        if not isinstance(self._values, list):
            self._values = list(self._values)
        self._values[position] = value

    def __getattr__(self, item: str) -> Any:
        raise AttributeError(f"no field {item!r} in {self!r}", name=item, obj=self)

    def _position(self, name: str) -> int:
        if self._fields is None:
            raise ValueError(f"no field {name!r}: this Row has no field names, use a position")
        try:
            return self._fields.index(name)
        except ValueError:
            raise ValueError(f"no field {name!r} in {self!r}") from None

    @classmethod
    def _base(cls) -> type[Row]:
        return cls.__bases__[0] if "_fields" in vars(cls) and cls is not Row else cls

    def __contains__(self, item: object) -> bool:
        return item in (self._values if self._fields is None else self._fields)

    def __call__(self, *args: Any) -> Row:
        if len(args) > len(self._values):
            raise ValueError(f"{self!r} makes rows of {len(self._values)} fields, got {args}")
        return _create_row(tuple(self._values[: len(args)]), args, self._row_kind)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Row) or self._row_kind is not other._row_kind:
            return False
        if self._fields == other._fields:
            return list(self._values) == list(other._values)
        if self._fields is None or other._fields is None:
            return False
        return self.as_dict() == other.as_dict()

    def __hash__(self) -> int:
        # Rows that are equal by name may order their fields differently.
        if self._fields is None:
            return hash(tuple(self._values))
        values = self.as_dict()
        return hash(tuple(values[name] for name in sorted(values)))

    def __repr__(self) -> str:
        if self._fields is None:
            return f"<Row({', '.join(map(repr, self._values))})>"
        pairs = zip(self._fields, self._values, strict=True)
        return f"Row({', '.join(f'{name}={value!r}' for name, value in pairs)})"

    def __reduce__(self) -> tuple[Any, ...]:
        arguments = (self._fields, tuple(self._values), self._row_kind, self._base())
        return _create_row, arguments[:2] if type(self) is row_class(self._fields) else arguments


def row_class(
    fields: tuple[str, ...] | None, kind: RowKind = _INSERT, base: type[Row] = Row
) -> type[Row]:
    """The class of rows with these names and this kind."""
    # Usually, the key is the names alone: hashing an enum or a longer tuple costs as much as a row.
    usual = kind is _INSERT and base is Row
    key = fields if usual else (fields, kind, base)
    found = _row_classes.get(key)
    if found is None:
        if len(_row_classes) >= _MOST_ROW_CLASSES:
            _row_classes.clear()
        found = _row_classes.setdefault(key, _make_row_class(fields, kind, base))
    return found


_row_classes: dict[object, type[Row]] = {}
_MOST_ROW_CLASSES = 1024  # a program may derive names from its data


def _make_row_class(fields: tuple[str, ...] | None, kind: RowKind, base: type[Row]) -> type[Row]:
    if fields is None and kind is _INSERT:
        return base
    members: dict[str, Any] = {
        "__slots__": (),
        "__module__": base.__module__,
        "__qualname__": base.__qualname__,
        "_fields": fields,
        "_row_kind": kind,
    }
    for position, name in enumerate(fields or ()):
        if not name.startswith("_") and not hasattr(base, name):
            members.setdefault(name, _field(position))
    return type(base.__name__, (base,), members)


def _field(position: int) -> property:
    return property(lambda row: row._values[position])


def _create_row(
    fields: tuple[str, ...] | None,
    values: tuple[Any, ...],
    kind: RowKind = _INSERT,
    base: type[Row] = Row,
) -> Row:
    row = object.__new__(row_class(fields, kind, base))
    row._values = values
    return row


def make_rows(kind_of_row: type[Row], records: Iterable[tuple[Any, ...]]) -> list[Row]:
    """Create rows of one `row_class` from tuples of values, for whole batches."""
    new = object.__new__
    rows: list[Row] = []
    for values in records:
        row = new(kind_of_row)
        row._values = values
        rows.append(row)
    return rows


def _without_rows(value: Any) -> Any:
    match value:
        case Row():
            return value.as_dict(recursive=True)
        case list():
            return [_without_rows(item) for item in value]
        case dict():
            return {key: _without_rows(item) for key, item in value.items()}
        case _:
            return value
