"""Converts records (tuples, rows, user objects) to lists of their fields and back."""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from itertools import repeat
from operator import attrgetter, itemgetter
from typing import Any

from tidegate.types.columns import Unfit
from tidegate.types.row import Row, RowKind, make_rows, row_class


class RecordShape(ABC):
    """Splits records into one list of values per field, and builds them from such lists."""

    def __init__(self, names: tuple[str, ...]) -> None:
        self.names = names

    @property
    @abstractmethod
    def layout(self) -> tuple[Any, ...]:
        """Equal for shapes that build the same records from the same columns."""

    @abstractmethod
    def split(self, records: Sequence[Any]) -> list[list[Any]]:
        """Return one list for each field; raises Unfit if a record has another shape."""

    @abstractmethod
    def join(self, columns: list[list[Any]]) -> list[Any]:
        """Return the records; there is at least one column."""

    def _split_tuples(self, records: Sequence[Sequence[Any]]) -> list[list[Any]]:
        width = len(self.names)
        for length in set(map(len, records)):
            if length != width:
                raise Unfit(f"it has {length} field(s), expected {width}")
        return [list(map(itemgetter(position), records)) for position in range(width)]


class TupleShape(RecordShape):
    """Tuples; lists and rows are accepted by position."""

    @property
    def layout(self) -> tuple[Any, ...]:
        return ("tuple",)

    def split(self, records: Sequence[Any]) -> list[list[Any]]:
        for found in set(map(type, records)):
            if not issubclass(found, tuple | list | Row):
                raise Unfit(f"it is of type {found.__name__}, expected a tuple")
        return self._split_tuples(records)

    def join(self, columns: list[list[Any]]) -> list[Any]:
        return list(zip(*columns, strict=True))


class RowShape(RecordShape):
    """Rows; dicts and objects are accepted by name, tuples and lists by position."""

    def __init__(self, names: tuple[str, ...]) -> None:
        super().__init__(names)
        self._row_class = row_class(names)

    @property
    def layout(self) -> tuple[Any, ...]:
        return ("row", self.names)

    def split(self, records: Sequence[Any]) -> list[list[Any]]:
        if set(map(type, records)) <= {self._row_class, Row}:
            return self._split_tuples([row._values for row in records])
        return self._split_tuples(list(map(self._values_of, records)))

    def _values_of(self, record: Any) -> Sequence[Any]:
        match record:
            case Row():
                if record._row_kind is not RowKind.INSERT:
                    raise Unfit(
                        f"its kind is {record._row_kind}, but typed streams only have "
                        f"{RowKind.INSERT} rows: omit the type of the stream to keep the kind"
                    )
                try:
                    return record.get_fields_by_names(self.names)
                except ValueError as failure:
                    raise Unfit(str(failure)) from None
            case tuple() | list():
                return record
            case dict():
                unknown = sorted(str(key) for key in record if key not in self.names)
                if unknown:
                    raise Unfit(f"it has the field(s) {', '.join(unknown)}, which the type lacks")
                return list(map(record.get, self.names))
            case _ if hasattr(record, "__dict__") or dataclasses.is_dataclass(record):
                missing = [name for name in self.names if not hasattr(record, name)]
                if missing:
                    raise Unfit(f"it has no attribute(s) {', '.join(missing)}")
                return [getattr(record, name) for name in self.names]
            case _:
                raise Unfit(f"it is of type {type(record).__name__}, expected a Row")

    def join(self, columns: list[list[Any]]) -> list[Any]:
        return make_rows(self._row_class, zip(*columns, strict=True))


class ClassShape(RecordShape):
    """Instances of a user class."""

    def __init__(self, record_class: type[Any], names: tuple[str, ...]) -> None:
        super().__init__(names)
        self.record_class = record_class

    @property
    def layout(self) -> tuple[Any, ...]:
        return ("class", self.record_class, self.names)

    def _check_class(self, records: Sequence[Any]) -> None:
        # A subclass may have more fields, which would be lost.
        for found in set(map(type, records)):
            if found is not self.record_class:
                raise Unfit(
                    f"it is of type {found.__qualname__}, expected {self.record_class.__qualname__}"
                )


class NamedTupleShape(ClassShape):
    def split(self, records: Sequence[Any]) -> list[list[Any]]:
        self._check_class(records)
        return self._split_tuples(records)

    def join(self, columns: list[list[Any]]) -> list[Any]:
        # tuple.__new__ instead of the class's own, which is written in Python.
        return list(map(tuple.__new__, repeat(self.record_class), zip(*columns, strict=True)))


class DataclassShape(ClassShape):
    """Dataclasses; as with pickle, an instance is restored without `__init__`."""

    def __init__(self, record_class: type[Any], names: tuple[str, ...]) -> None:
        super().__init__(record_class, names)
        self._assemble = _assembler(record_class, names)

    def split(self, records: Sequence[Any]) -> list[list[Any]]:
        self._check_class(records)
        try:
            return [list(map(attrgetter(name), records)) for name in self.names]
        except AttributeError as failure:
            raise Unfit(f"it lacks a field: {failure}") from None

    def join(self, columns: list[list[Any]]) -> list[Any]:
        return self._assemble(columns)


def _assembler(
    record_class: type[Any], names: tuple[str, ...]
) -> Callable[[list[list[Any]]], list[Any]]:
    own_setter: object = record_class.__setattr__
    if own_setter is not object.__setattr__:  # frozen, or user-defined
        return partial(_assemble_frozen, record_class, names)
    # Generated for these names: twice as fast as any loop over names.
    variables = [f"value_{position}" for position in range(len(names))]
    assignments = [
        f"        record.{name} = {variable}\n"
        for name, variable in zip(names, variables, strict=True)
    ]
    source = (
        "def assemble(columns):\n"
        "    records = []\n"
        f"    for {', '.join(variables)}, in zip(*columns, strict=True):\n"
        "        record = new(record_class)\n"
        f"{''.join(assignments)}"
        "        records.append(record)\n"
        "    return records\n"
    )
    scope: dict[str, Any] = {"new": object.__new__, "record_class": record_class}
    exec(compile(source, f"<{record_class.__qualname__} from columns>", "exec"), scope)
    assemble: Callable[[list[list[Any]]], list[Any]] = scope["assemble"]
    return assemble


def _assemble_frozen(
    record_class: type[Any], names: tuple[str, ...], columns: list[list[Any]]
) -> list[Any]:
    records = list(map(object.__new__, repeat(record_class, len(columns[0]))))
    for name, values in zip(names, columns, strict=True):
        deque(map(object.__setattr__, records, repeat(name), values), maxlen=0)
    return records
