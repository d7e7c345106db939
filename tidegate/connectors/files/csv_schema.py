"""The columns and the format of CSV files, under PyFlink's names."""

from __future__ import annotations

from typing import Any, Self

from tidegate.connectors.files.encodings import CsvEncoding
from tidegate.connectors.files.formats import CsvFormat
from tidegate.core.errors import ConfigError
from tidegate.types.infer import as_type_info
from tidegate.types.typeinfo import RowTypeInfo, TypeInformation, Types


class CsvSchema:
    """The columns of a CSV file, and how its values are written."""

    def __init__(self, columns: dict[str, TypeInformation], options: dict[str, Any]) -> None:
        self._columns = columns
        self._options = options

    @staticmethod
    def builder() -> CsvSchemaBuilder:
        """Create a builder."""
        return CsvSchemaBuilder()

    def size(self) -> int:
        """The number of columns."""
        return len(self._columns)

    def __len__(self) -> int:
        return self.size()

    @property
    def row_type(self) -> RowTypeInfo:
        """The type of the rows."""
        return Types.ROW_NAMED(list(self._columns), list(self._columns.values()))

    def reader(self) -> CsvFormat:
        """The format to read such files."""
        options = {name: value for name, value in self._options.items() if name != "line_end"}
        return CsvFormat(self.row_type, **{"header": False, **options})

    def writer(self) -> CsvEncoding:
        """The encoding to write such files."""
        options = {name: value for name, value in self._options.items() if name != "skip_lines"}
        return CsvEncoding(names=list(self._columns), **{"header": False, **options})


class CsvSchemaBuilder:
    """Settings of a CsvSchema; columns in the order in which they are added."""

    def __init__(self) -> None:
        self._columns: dict[str, TypeInformation] = {}
        self._options: dict[str, Any] = {}

    def build(self) -> CsvSchema:
        """Build the schema."""
        if not self._columns:
            raise ConfigError("columns", "none", "add at least one")
        return CsvSchema(dict(self._columns), dict(self._options))

    def add_string_column(self, name: str) -> Self:
        """Add a text column."""
        return self._column(name, Types.STRING())

    def add_boolean_column(self, name: str) -> Self:
        """Add a column of true and false."""
        return self._column(name, Types.BOOLEAN())

    def add_number_column(self, name: str, number_type: Any = None) -> Self:
        """Add a column of numbers: `Types.LONG()`, `Types.DOUBLE()` and the like; default LONG."""
        declared = Types.LONG() if number_type is None else as_type_info(number_type)
        return self._column(name, declared)

    def add_array_column(self, name: str, separator: str = ";", element_type: Any = None) -> Self:
        """Unsupported: add a text column, and split its values in a map()."""
        raise ConfigError("array column", name, "add a string column, and split it in a map()")

    def add_columns_from(self, schema: CsvSchema) -> Self:
        """Add the columns of another schema."""
        self._columns.update(schema._columns)
        return self

    def clear_columns(self) -> Self:
        """Remove all columns."""
        self._columns.clear()
        return self

    def set_use_header(self, use: bool = True) -> Self:
        """Set whether the first line has the names of the columns."""
        return self._set(header=use)

    def set_strict_headers(self, strict: bool = True) -> Self:
        """Accepted for compatibility: columns are found by name, in any order."""
        return self

    def set_skip_first_data_row(self, skip: bool = True) -> Self:
        """Set whether to skip the first line, or the first after the header."""
        return self._set(skip_lines=int(skip))

    def set_column_separator(self, char: str) -> Self:
        """Set the separator between values; a comma by default."""
        return self._set(delimiter=char)

    def set_quote_char(self, char: str) -> Self:
        """Set the quote character; a double quote by default."""
        return self._set(quote=char)

    def disable_quote_char(self) -> Self:
        """Disable quoting."""
        return self._set(quote=None)

    def set_escape_char(self, char: str) -> Self:
        """Set the escape character."""
        return self._set(escape=char)

    def disable_escape_char(self) -> Self:
        """Disable escaping; the default."""
        return self._set(escape=None)

    def set_line_separator(self, separator: str) -> Self:
        """Set the end of written lines."""
        return self._set(line_end=separator)

    def set_null_value(self, null_value: str) -> Self:
        """Set the text for None."""
        return self._set(null_value=null_value)

    def set_allow_comments(self, allow: bool = True) -> Self:
        """Unsupported: filter such lines."""
        if allow:
            raise ConfigError("allow_comments", True, "filter such lines as text first")
        return self

    def size(self) -> int:
        """The number of columns so far."""
        return len(self._columns)

    def _column(self, name: str, declared: TypeInformation) -> Self:
        self._columns[name] = declared
        return self

    def _set(self, **options: Any) -> Self:
        self._options.update(options)
        return self


class CsvReaderFormat:
    """Reads CSV files as rows: PyFlink's name for `CsvFormat`."""

    @staticmethod
    def for_schema(schema: CsvSchema) -> CsvFormat:
        """The format for `FileSource.for_record_stream_format`."""
        return schema.reader()


class CsvBulkWriters:
    """Writes rows as CSV files: PyFlink's name for `CsvEncoding`."""

    @staticmethod
    def for_schema(schema: CsvSchema) -> CsvEncoding:
        """The encoding for `FileSink.for_bulk_format`."""
        return schema.writer()
