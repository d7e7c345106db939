"""How files are decoded into records."""

from __future__ import annotations

import codecs
import io
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
from pyarrow import csv as arrow_csv
from pyarrow import json as arrow_json

from tidegate.connectors.files.file_system import FoundFile, open_file
from tidegate.connectors.files.lines import (
    LineBlocks,
    LineCursor,
    LineParser,
    LineSplit,
    UnreadableLines,
    line_ends,
    line_splits,
    split_lines,
)
from tidegate.connectors.serialization import line_charset
from tidegate.connectors.splits import Cursor
from tidegate.core.errors import ConfigError, MissingField
from tidegate.stream.batch import Batch
from tidegate.types.arrow import ArrowFormat, arrow_format
from tidegate.types.infer import as_type_info
from tidegate.types.typeinfo import (
    BasicType,
    BasicTypeInfo,
    CompositeTypeInfo,
    TypeInformation,
    Types,
)

_WITHOUT_TEXT_FORM = (BasicType.BIG_INT, BasicType.BIG_DEC, BasicType.INSTANT)


class FileFormat(ABC):
    """Cuts files into splits and reads them."""

    @abstractmethod
    def splits(self, files: Sequence[FoundFile], parallelism: int) -> Sequence[Any]:
        """The splits, in the order in which a single reader would read them."""

    @abstractmethod
    def cursor(self, split: Any, format: ArrowFormat | None) -> Cursor:
        """Read a split, as records of a stream with this `format`."""

    def produced_type(self, paths: Sequence[str]) -> TypeInformation | None:
        """The type of the records, if the format or the files define it."""
        return None


class StreamFormat(FileFormat):
    """A record per line: PyFlink's name for formats that are read as a stream."""

    @staticmethod
    def text_line_format(charset_name: str = "UTF-8") -> TextLineFormat:
        """Lines of text."""
        return TextLineFormat(charset_name)

    def splits(self, files: Sequence[FoundFile], parallelism: int) -> Sequence[LineSplit]:
        return line_splits(files, parallelism)


class TextLineFormat(StreamFormat):
    """Every line is a record, without its line end."""

    def __init__(self, charset: str = "UTF-8") -> None:
        self._charset = line_charset(charset)

    def cursor(self, split: LineSplit, format: ArrowFormat | None) -> Cursor:
        return LineCursor(split, _TextParser(self._charset, format))

    def produced_type(self, paths: Sequence[str]) -> TypeInformation:
        return Types.STRING()


class CsvFormat(StreamFormat):
    """Typed rows from CSV, whole batches at a time.

    With a header, columns are found by the field names of the type, and others are ignored; without
    one, they are the fields in order. An empty number is None, and so is `NULL`, `NA` or `N/A` in
    its place. Values may be quoted, but must not contain line breaks: files are split at any line.
    """

    def __init__(
        self,
        type_info: Any,
        *,
        header: bool = True,
        delimiter: str = ",",
        quote: str | None = '"',
        escape: str | None = None,
        null_value: str | None = None,
        skip_lines: int = 0,
    ) -> None:
        """`null_value` is None, even in text columns; `skip_lines` are skipped in each file."""
        self._type = as_type_info(type_info)
        require_columns(self._type, "CSV")
        self._header = header
        self._skip_lines = skip_lines
        self._values = CsvValues(delimiter, quote, escape, null_value)

    def cursor(self, split: LineSplit, format: ArrowFormat | None) -> Cursor:
        wanted = format or require_columns(self._type, "CSV")
        names = self._column_names(split.path, wanted)
        parser = CsvParser(wanted, names, self._values)
        return LineCursor(split, parser, header_lines=self._header + self._skip_lines)

    def _column_names(self, path: str, format: ArrowFormat) -> list[str]:
        if not self._header:
            return list(format.schema.names)
        with open_file(path) as file:
            blocks = LineBlocks(file, LineSplit(path, 0, None))
            header = blocks.next_block().partition(b"\n")[0]
        header = header.removeprefix(codecs.BOM_UTF8).removesuffix(b"\r")
        if not header:
            return list(format.schema.names)
        parse = self._values.parse_options()
        names = arrow_csv.read_csv(io.BytesIO(header + b"\n"), parse_options=parse).column_names
        for name in format.schema.names:
            if name not in names:
                raise MissingField(name, tuple(names), f"the header of {path}")
        return names

    def produced_type(self, paths: Sequence[str]) -> TypeInformation:
        return self._type


class JsonLinesFormat(StreamFormat):
    """A JSON value per line: with a type, rows in whole batches; otherwise any value."""

    def __init__(self, type_info: Any = None) -> None:
        self._type = None if type_info is None else as_type_info(type_info)
        if self._type is not None and require_columns(self._type, "JSON").is_scalar:
            raise ConfigError(
                "type_info", self._type, "give a type with named fields, or none at all"
            )

    def cursor(self, split: LineSplit, format: ArrowFormat | None) -> Cursor:
        if self._type is None:
            return LineCursor(split, _JsonParser(format))
        return LineCursor(split, TypedJsonParser(format or require_columns(self._type, "JSON")))

    def produced_type(self, paths: Sequence[str]) -> TypeInformation | None:
        return self._type


def require_columns(type_info: TypeInformation, kind: str) -> ArrowFormat:
    """The columns of a type that text can represent; raises ConfigError for other types."""
    format = arrow_format(type_info)
    if format is None:
        raise ConfigError("type_info", type_info, f"{kind} needs a type without pickled parts")
    fields = type_info.get_field_types() if isinstance(type_info, CompositeTypeInfo) else []
    for name, field in zip(format.schema.names, fields, strict=False):
        if isinstance(field, BasicTypeInfo) and field.basic_type in _WITHOUT_TEXT_FORM:
            raise ConfigError(
                f"type of field {name}", field, f"declare STRING for {kind} and convert in a map"
            )
    return format


class _TextParser(LineParser):
    def __init__(self, charset: str, format: ArrowFormat | None) -> None:
        self._charset = charset
        self._format = format

    def parse(self, lines: bytes) -> Batch:
        try:
            text = lines.decode(self._charset)
        except UnicodeDecodeError as error:
            raise UnreadableLines(
                f"byte {error.object[error.start]:#04x} is not {self._charset} text",
                "specify the charset of the file",
            ) from None
        if "\r" in text:
            text = text.replace("\r\n", "\n")
        records = text.split("\n")
        if not records[-1]:
            records.pop()
        return Batch.of_records(records, self._format)


class _JsonParser(LineParser):
    def __init__(self, format: ArrowFormat | None) -> None:
        self._format = format

    def parse(self, lines: bytes) -> Batch:
        try:
            records = [_json_value(line) for line in split_lines(lines.decode())]
        except ValueError as error:
            raise UnreadableLines(f"not JSON: {error}", "every line must be a JSON value") from None
        return Batch.of_records(records, self._format)


_json = json.JSONDecoder()


def _json_value(line: str) -> Any:
    """`json.loads` for a line without surrounding blanks, at half the cost."""
    value, end = _json.raw_decode(line)
    return value if end == len(line) else json.loads(line)


class TypedJsonParser(LineParser):
    """Objects as rows; white space between and within them is ignored."""

    def __init__(self, format: ArrowFormat) -> None:
        self._format = format
        self._options = arrow_json.ParseOptions(
            explicit_schema=pa.schema(
                [pa.field(field.name, _type_in_json(field.type)) for field in format.schema]
            ),
            unexpected_field_behavior="ignore",
        )

    def parse(self, lines: bytes) -> Batch:
        def read() -> pa.Table:
            block = arrow_json.ReadOptions(use_threads=False, block_size=len(lines) + 1)
            return arrow_json.read_json(io.BytesIO(lines), block, self._options)

        return _columnar(read, lines, self._format, "JSON")


def _type_in_json(arrow_type: pa.DataType) -> pa.DataType:
    """The type to read with: in files, dates and times are text, but Arrow expects numbers."""
    is_ = pa.types
    in_text = is_.is_date(arrow_type) or is_.is_time(arrow_type) or is_.is_decimal(arrow_type)
    return pa.string() if in_text else arrow_type


_NAN: Final = ("nan", "NaN", "-nan", "-NaN")
"""A number for Python and Java, which Arrow would read as None."""


@dataclass(frozen=True, slots=True)
class CsvValues:
    """How values are written in a line of text."""

    delimiter: str = ","
    quote: str | None = '"'
    escape: str | None = None
    null_value: str | None = None
    """The text for None, in any column.

    By default an empty value or a usual word for it (`NULL`, `NA`, `N/A`), except in text columns.
    """

    def parse_options(self) -> arrow_csv.ParseOptions:
        return arrow_csv.ParseOptions(
            delimiter=self.delimiter,
            quote_char=self.quote or False,
            escape_char=self.escape or False,
        )

    def convert_options(self, schema: pa.Schema) -> arrow_csv.ConvertOptions:
        options = arrow_csv.ConvertOptions(
            column_types=schema, include_columns=schema.names, strings_can_be_null=False
        )
        options.null_values = [text for text in options.null_values or () if text not in _NAN]
        if self.null_value is not None:
            options.null_values = [self.null_value]
            options.strings_can_be_null = True
            options.quoted_strings_can_be_null = False
        return options


class CsvParser(LineParser):
    """Lines of values as rows."""

    def __init__(self, format: ArrowFormat, names: list[str], values: CsvValues) -> None:
        self._format = format
        self._names = names
        self._parse = values.parse_options()
        self._convert = values.convert_options(format.schema)

    def parse(self, lines: bytes) -> Batch:
        def read() -> pa.Table:
            options = arrow_csv.ReadOptions(
                use_threads=False, column_names=self._names, block_size=len(lines) + 1
            )
            return arrow_csv.read_csv(io.BytesIO(lines), options, self._parse, self._convert)

        batch = _columnar(read, lines, self._format, "CSV")
        if len(batch):
            _check_rows(batch.columns, lines)
        return batch


def _check_rows(rows: pa.RecordBatch, lines: bytes) -> None:
    """Check that each line is a row: an open quote merges its line with the following ones."""
    found, expected = rows.num_rows, len(line_ends(lines))
    if found != expected:
        expected = sum(line.rstrip(b"\r") != b"" for line in lines.split(b"\n"))
    last = rows.slice(found - 1).to_pylist()[0]
    if found != expected:
        problem = f"{expected} line(s) hold {found} row(s)"
    elif any("\n" in value for value in last.values() if isinstance(value, str)):
        problem = "a quote is still open at the end of the line"
    else:
        return
    raise UnreadableLines(problem, "close quotes in their line: values cannot contain line ends")


def _columnar(read: Callable[[], pa.Table], lines: bytes, format: ArrowFormat, kind: str) -> Batch:
    if not lines.strip():
        return Batch.of_records([], format)
    try:
        table = read()
        arrays = [
            table.column(field.name).combine_chunks().cast(field.type) for field in format.schema
        ]
    except pa.ArrowInvalid as error:
        raise UnreadableLines(
            str(error).replace("\n", " "),
            f"correct the line, or declare the actual type of the {kind}",
        ) from None
    return Batch.of_columns(pa.RecordBatch.from_arrays(arrays, schema=format.schema), format)
