"""Avro schemas, and the conversion between Avro values and records: dicts, or typed rows."""

from __future__ import annotations

import datetime
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, Final
from uuid import UUID

from tidegate.connectors.files.encodings import field_names, field_values
from tidegate.core.errors import ConfigError
from tidegate.types.typeinfo import (
    ListTypeInfo,
    MapTypeInfo,
    PickledBytesTypeInfo,
    RowTypeInfo,
    TypeInformation,
    Types,
)

_SIMPLE: Final[Mapping[str, Callable[[], TypeInformation]]] = {
    "boolean": Types.BOOLEAN,
    "int": Types.INT,
    "long": Types.LONG,
    "float": Types.FLOAT,
    "double": Types.DOUBLE,
    "string": Types.STRING,
    "enum": Types.STRING,
    "bytes": lambda: Types.PRIMITIVE_ARRAY(Types.BYTE()),
    "fixed": lambda: Types.PRIMITIVE_ARRAY(Types.BYTE()),
}
_LOGICAL: Final[Mapping[str, Callable[[], TypeInformation]]] = {
    "date": Types.SQL_DATE,
    "time-millis": Types.SQL_TIME,
    "time-micros": Types.SQL_TIME,
    "timestamp-millis": Types.SQL_TIMESTAMP,
    "timestamp-micros": Types.SQL_TIMESTAMP,
    "local-timestamp-millis": Types.SQL_TIMESTAMP,
    "local-timestamp-micros": Types.SQL_TIMESTAMP,
    "decimal": Types.BIG_DEC,
}


def fastavro() -> ModuleType:
    """Import the library; raises ImportError with instructions to install it."""
    try:
        import fastavro.write
    except ImportError as missing:
        raise ImportError(
            f"Avro needs fastavro ({missing}): pip install 'tidegate[avro]'"
        ) from None
    return fastavro


class AvroSchema:
    """A schema as Avro writes it, in JSON."""

    def __init__(self, parsed: Any) -> None:
        self.parsed = fastavro().parse_schema(parsed)
        """The schema as parsed by fastavro."""

    @staticmethod
    def parse_string(json_schema: str) -> AvroSchema:
        """Parse a schema from a string."""
        return AvroSchema(json.loads(json_schema))

    @staticmethod
    def parse_file(file_path: str) -> AvroSchema:
        """Parse a schema from a local file."""
        return AvroSchema.parse_string(Path(file_path).read_text(encoding="utf-8"))

    def type_info(self) -> TypeInformation:
        """The type of its values, rows for records.

        Raises:
            ConfigError: values of this schema have no common type.
        """
        return _type_of(self.parsed, {}, ())

    def __repr__(self) -> str:
        return f"AvroSchema({self.parsed!r})"


class GenericRecordAvroTypeInfo(PickledBytesTypeInfo):
    """Records of a schema as dicts."""

    def __init__(self, schema: AvroSchema) -> None:
        self.schema = schema


def _type_of(
    schema: Any, known: dict[str, TypeInformation], inside: tuple[str, ...]
) -> TypeInformation:
    if isinstance(schema, list):
        branches = [branch for branch in schema if branch != "null"]
        if len(branches) == 1:
            return _type_of(branches[0], known, inside)
        raise ConfigError("schema", schema, "only unions of null and one type are supported")
    if isinstance(schema, str):
        if schema in known:
            return known[schema]
        if schema in inside:
            raise ConfigError("schema", schema, "recursive records are not supported")
        schema = {"type": schema}
    kind, name = schema["type"], schema.get("name", "")
    if kind == "record":
        fields = schema["fields"]
        types = [_type_of(field["type"], known, (*inside, name)) for field in fields]
        found: TypeInformation = Types.ROW_NAMED([field["name"] for field in fields], types)
    elif kind == "array":
        found = Types.LIST(_type_of(schema["items"], known, inside))
    elif kind == "map":
        found = Types.MAP(Types.STRING(), _type_of(schema["values"], known, inside))
    elif isinstance(kind, dict | list):
        found = _type_of(kind, known, inside)
    else:
        make = _LOGICAL.get(schema.get("logicalType", "")) or _SIMPLE.get(kind)
        if make is None:
            raise ConfigError("schema", schema, "Avro has no such type")
        found = make()
    if name:
        known[name] = found
    return found


def from_avro(value: Any) -> Any:
    """A value as Python programs expect it: times without a zone are UTC, UUIDs are text."""
    match value:
        case dict():
            return {name: from_avro(item) for name, item in value.items()}
        case list():
            return [from_avro(item) for item in value]
        case datetime.datetime(tzinfo=zone) if zone is not None:
            return value.astimezone(datetime.UTC).replace(tzinfo=None)
        case UUID():
            return str(value)
    return value


def to_avro(value: Any, type_info: TypeInformation | None = None) -> Any:
    """A record as fastavro expects it: rows, tuples and objects become dicts."""
    if isinstance(value, Mapping):
        inner = type_info.value_type if isinstance(type_info, MapTypeInfo) else None
        return {name: to_avro(item, inner) for name, item in value.items()}
    if isinstance(type_info, RowTypeInfo) or field_names(value):
        return _to_fields(value, type_info)
    if isinstance(value, list | tuple):
        inner = type_info.element_type if isinstance(type_info, ListTypeInfo) else None
        return [to_avro(item, inner) for item in value]
    if isinstance(value, datetime.datetime) and value.tzinfo is None:
        return value.replace(tzinfo=datetime.UTC)
    return value


def _to_fields(value: Any, type_info: TypeInformation | None) -> Any:
    if value is None:
        return None
    names: Sequence[str] = field_names(value)
    types: list[Any] = [None] * len(names)
    if isinstance(type_info, RowTypeInfo):
        names = names or type_info.get_field_names()
        known = dict(zip(type_info.get_field_names(), type_info.get_field_types(), strict=True))
        types = [known.get(name) for name in names]
    values = field_values(value)
    if len(values) != len(names):
        raise ValueError(f"{len(values)} field(s) where the schema has {', '.join(names)}")
    fields = zip(names, values, types, strict=True)
    return {name: to_avro(item, inner) for name, item, inner in fields}
