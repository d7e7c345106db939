"""Avro's object container files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import IO, Any

from tidegate.connectors.files.avro_schema import (
    AvroSchema,
    GenericRecordAvroTypeInfo,
    fastavro,
    from_avro,
    to_avro,
)
from tidegate.connectors.files.encodings import FileEncoder, FileEncoding
from tidegate.connectors.files.file_system import FoundFile, open_file
from tidegate.connectors.files.formats import FileFormat
from tidegate.connectors.files.source import FileSource
from tidegate.connectors.splits import Cursor
from tidegate.core.errors import ConfigError, UnreadableInput
from tidegate.stream.batch import Batch
from tidegate.types.arrow import ArrowFormat
from tidegate.types.typeinfo import TypeInformation


class AvroEncoding(FileEncoding):
    """Records of a schema: dicts, rows, tuples, or objects with its fields."""

    suffix = ".avro"

    def __init__(self, schema: AvroSchema, codec: str = "null") -> None:
        """`codec` compresses the blocks of a file: "null", "deflate", or others of fastavro."""
        self._schema = schema
        self._codec = codec
        try:
            self._type: TypeInformation | None = schema.type_info()
        except ConfigError:
            self._type = None  # the records are dicts

    def open(self, stream: IO[bytes]) -> FileEncoder:
        writer = fastavro().write.Writer(stream, self._schema.parsed, codec=self._codec)
        return _AvroEncoder(writer, self._type)


class _AvroEncoder(FileEncoder):
    def __init__(self, writer: Any, type_info: TypeInformation | None) -> None:
        self._writer = writer
        self._type = type_info

    def write(self, batch: Batch) -> None:
        for record in batch.records:
            self._writer.write(to_avro(record, self._type))

    def finish(self) -> None:
        self._writer.flush()


@dataclass(frozen=True, slots=True)
class AvroSplit:
    """A file from the block at `offset`, without the first `skipped` records of that block."""

    path: str
    offset: int | None = None
    """None: the first block, which follows the header of the file."""
    skipped: int = 0


class AvroFormat(FileFormat):
    """Rows of Avro files, or dicts on request; a file is a split.

    Without a schema, the files define the type of the records. With one, fields that a file lacks
    get their default, as in Avro's schema resolution.
    """

    def __init__(self, schema: AvroSchema | None = None, *, as_dicts: bool = False) -> None:
        self._schema = schema
        self._as_dicts = as_dicts

    def splits(self, files: Sequence[FoundFile], parallelism: int) -> Sequence[AvroSplit]:
        return [AvroSplit(file.path) for file in files]

    def cursor(self, split: AvroSplit, format: ArrowFormat | None) -> Cursor:
        return _AvroCursor(split, self._schema, format)

    def produced_type(self, paths: Sequence[str]) -> TypeInformation | None:
        if self._as_dicts:
            return None if self._schema is None else GenericRecordAvroTypeInfo(self._schema)
        if self._schema is not None:
            return self._schema.type_info()
        if not paths:
            return None
        with open_file(paths[0]) as file:
            return AvroSchema(_blocks(paths[0], file, None).writer_schema).type_info()


class _AvroCursor(Cursor):
    def __init__(
        self, split: AvroSplit, schema: AvroSchema | None, format: ArrowFormat | None
    ) -> None:
        self._split = split
        self._format = format
        self._file = open_file(split.path)
        self._blocks = _blocks(split.path, self._file, schema)
        if split.offset is not None:
            self._file.seek(split.offset)
        self._records: Iterator[Any] | None = None
        self._left = 0
        self._is_done = False

    def read(self, max_records: int) -> Batch | None:
        if self._records is None and not self._next_block():
            return None
        assert self._records is not None
        records = [from_avro(record) for record in islice(self._records, max_records)]
        self._left -= len(records)
        self._split = replace(self._split, skipped=self._split.skipped + len(records))
        if not self._left:
            self._records = None
            self._split = AvroSplit(self._split.path, self._file.tell())
        if self._format is None:
            return Batch.of_records(records)
        return Batch.of_columns(self._format.encode(records), self._format)

    def _next_block(self) -> bool:
        before = self._file.tell()
        block = next(self._blocks, None)
        if block is None:
            self._is_done = True
            return False
        skipped = self._split.skipped
        self._split = AvroSplit(self._split.path, before, skipped)
        self._records = islice(iter(block), skipped, None)
        self._left = block.num_records - skipped
        return True

    @property
    def is_done(self) -> bool:
        return self._is_done

    def position(self) -> AvroSplit:
        return self._split

    def close(self) -> None:
        self._file.close()


def _blocks(path: str, file: IO[bytes], schema: AvroSchema | None) -> Any:
    try:
        return fastavro().block_reader(file, None if schema is None else schema.parsed)
    except ValueError as error:
        raise UnreadableInput(path, str(error), "give Avro files") from None


class AvroInputFormat(FileSource):
    """The records of Avro files as dicts: PyFlink's name, for `create_input`."""

    def __init__(self, path: str, schema: AvroSchema) -> None:
        super().__init__(path, AvroFormat(schema, as_dicts=True))
        self._schema = schema

    def get_produced_type(self) -> GenericRecordAvroTypeInfo:
        """The type of the records."""
        return GenericRecordAvroTypeInfo(self._schema)
