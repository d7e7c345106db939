"""Decodes messages into typed rows, whole batches at a time."""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, NoReturn, Self

import numpy as np
import pyarrow as pa

from tidegate.connectors.files.formats import (
    CsvParser,
    CsvValues,
    TypedJsonParser,
    require_columns,
)
from tidegate.connectors.files.lines import LineParser, UnreadableLines
from tidegate.connectors.serialization import DeserializationSchema
from tidegate.core.errors import ConfigError
from tidegate.core.fluent import FluentBuilder
from tidegate.types.arrow import ArrowFormat
from tidegate.types.infer import as_type_info
from tidegate.types.typeinfo import TypeInformation

_OPENING, _CLOSING = b"{}"


class UnreadableMessages(Exception):
    """Raised by a schema if it cannot read at least one of the messages."""


class RowDeserializationSchema(DeserializationSchema):
    """Messages as rows of a type, without a Python object per message."""

    skips_undecodable = False
    """Whether messages that cannot be decoded are skipped instead of ending the job."""

    def __init__(self, format: ArrowFormat) -> None:
        self.format = format

    def produced_type(self) -> TypeInformation:
        return self.format.type_info

    def deserialize(self, message: bytes) -> Any:
        try:
            return self.format.decode(self.deserialize_all([message]))[0]
        except UnreadableMessages:
            if self.skips_undecodable:
                return None
            raise

    @abstractmethod
    def deserialize_all(self, messages: Sequence[bytes]) -> pa.RecordBatch:
        """A row per message, in order; raises UnreadableMessages if one cannot be read."""


class JsonRowDeserializationSchema(RowDeserializationSchema):
    """A JSON object per message. Fields that the type lacks are ignored.

    A missing field is None, unless `fail_on_missing_field` is set.
    """

    def __init__(
        self,
        type_info: Any,
        *,
        fail_on_missing_field: bool = False,
        ignore_parse_errors: bool = False,
    ) -> None:
        format = require_columns(as_type_info(type_info), "JSON")
        if format.is_scalar:
            raise ConfigError("type_info", format.type_info, "give a type with named fields")
        super().__init__(format)
        self._fail_on_missing_field = fail_on_missing_field
        self.skips_undecodable = ignore_parse_errors

    @staticmethod
    def builder() -> JsonRowDeserializationSchema.Builder:
        """Create a builder."""
        return JsonRowDeserializationSchema.Builder()

    def deserialize_all(self, messages: Sequence[bytes]) -> pa.RecordBatch:
        # The parser accepts objects anywhere, even two in one message. The number of rows and the
        # ends of messages together show that each message is one object.
        text = b"\n".join(messages)
        _check_ends(messages, text)
        columns = _parsed(TypedJsonParser(self.format), text, len(messages))
        if self._fail_on_missing_field and any(column.null_count for column in columns.columns):
            self._check_fields(messages)
        return columns

    def _check_fields(self, messages: Sequence[bytes]) -> None:
        for message in messages:
            known = json.loads(message)
            for name in self.format.field_names:
                if name not in known:
                    raise UnreadableMessages(f"the field {name!r} is missing")

    class Builder(FluentBuilder):
        """Settings of the schema, under PyFlink's names."""

        def type_info(self, type_info: Any) -> Self:
            return self._with(type_info=type_info)

        def json_schema(self, json_schema: str) -> NoReturn:
            raise ConfigError("json_schema", json_schema, "use type_info() instead")

        def fail_on_missing_field(self) -> Self:
            return self._with(fail_on_missing_field=True)

        def ignore_parse_errors(self) -> Self:
            return self._with(ignore_parse_errors=True)

        def build(self) -> JsonRowDeserializationSchema:
            if self._chosen.get("type_info") is None:
                raise ConfigError("type_info", None, "give the type of the rows")
            if {"fail_on_missing_field", "ignore_parse_errors"} <= self._chosen.keys():
                raise ConfigError(
                    "ignore_parse_errors", True, "not together with fail_on_missing_field()"
                )
            return JsonRowDeserializationSchema(**self._chosen)


class CsvRowDeserializationSchema(RowDeserializationSchema):
    """A line of values per message, in the order of the fields; an empty number is None."""

    def __init__(
        self,
        type_info: Any,
        *,
        delimiter: str = ",",
        quote: str | None = '"',
        escape: str | None = None,
        null_literal: str | None = None,
        ignore_parse_errors: bool = False,
    ) -> None:
        super().__init__(require_columns(as_type_info(type_info), "CSV"))
        values = CsvValues(delimiter, quote, escape, null_literal)
        self._parser = CsvParser(self.format, list(self.format.schema.names), values)
        self.skips_undecodable = ignore_parse_errors

    def deserialize_all(self, messages: Sequence[bytes]) -> pa.RecordBatch:
        lines = [message.rstrip(b"\r\n") for message in messages]
        if any(b"\n" in line for line in lines):
            raise UnreadableMessages("more than one line")
        return _parsed(self._parser, b"\n".join(lines), len(lines))

    class Builder(FluentBuilder):
        """Settings of the schema, under PyFlink's names."""

        def __init__(self, type_info: Any) -> None:
            super().__init__(type_info=type_info)

        def set_field_delimiter(self, delimiter: str) -> Self:
            return self._with(delimiter=delimiter)

        def set_quote_character(self, c: str) -> Self:
            return self._with(quote=c)

        def set_escape_character(self, c: str) -> Self:
            return self._with(escape=c)

        def set_null_literal(self, null_literal: str) -> Self:
            return self._with(null_literal=null_literal)

        def set_allow_comments(self, allow_comments: bool) -> Self:
            if allow_comments:
                raise ConfigError("allow_comments", True, "filter such messages first")
            return self

        def set_array_element_delimiter(self, delimiter: str) -> NoReturn:
            raise ConfigError("array_element_delimiter", delimiter, "declare STRING and split it")

        def set_ignore_parse_errors(self, ignore_parse_errors: bool) -> Self:
            return self._with(ignore_parse_errors=ignore_parse_errors)

        def build(self) -> CsvRowDeserializationSchema:
            return CsvRowDeserializationSchema(**self._chosen)


def _parsed(parser: LineParser, text: bytes, count: int) -> pa.RecordBatch:
    try:
        columns = parser.parse(text).columns
    except UnreadableLines as problem:
        raise UnreadableMessages(problem.problem) from None
    if columns.num_rows != count:
        raise UnreadableMessages(f"{count} message(s) hold {columns.num_rows} row(s)")
    return columns


def _check_ends(messages: Sequence[bytes], text: bytes) -> None:
    """Check that each message begins and ends like an object; `text` has line feeds in between."""
    lengths = np.fromiter(map(len, messages), np.int64, len(messages))
    if lengths.all():
        characters = np.frombuffer(text, dtype=np.uint8)
        starts = np.cumsum(lengths + 1) - lengths - 1
        if (characters[starts] == _OPENING).all() and (
            characters[starts + lengths - 1] == _CLOSING
        ).all():
            return
    for message in messages:
        stripped = message.strip()
        if not (stripped.startswith(b"{") and stripped.endswith(b"}")):
            raise UnreadableMessages("not a JSON object")
