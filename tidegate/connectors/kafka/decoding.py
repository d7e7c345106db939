"""Decodes Kafka messages into records, whole batches at a time if the schema allows."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from operator import itemgetter, methodcaller
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidegate.connectors.row_schemas import RowDeserializationSchema, UnreadableMessages
from tidegate.connectors.serialization import DeserializationSchema, SimpleStringSchema
from tidegate.stream.batch import NO_TIMESTAMP, Batch
from tidegate.types.arrow import ArrowFormat, arrow_format
from tidegate.types.infer import as_type_info
from tidegate.types.typeinfo import TypeInformation, Types

BYTES = Types.PRIMITIVE_ARRAY(Types.BYTE())
ROW_TYPE = Types.ROW_NAMED(
    ["topic", "partition", "offset", "timestamp", "key", "value", "headers"],
    [
        Types.STRING(),
        Types.INT(),
        Types.LONG(),
        Types.LONG(),
        BYTES,
        BYTES,
        Types.LIST(Types.TUPLE([Types.STRING(), BYTES])),
    ],
)
_TEXT = arrow_format(Types.STRING())
_VALUE, _TIMESTAMP = methodcaller("value"), methodcaller("timestamp")


class KafkaRecord(NamedTuple):
    """A message with all its metadata."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    """Milliseconds since the epoch; -1 for none."""
    key: bytes | None
    value: bytes | None
    """None: a tombstone, which deletes its key in a compacted topic."""
    headers: list[tuple[str, bytes | None]]


class KafkaRecordDeserializationSchema(ABC):
    """Converts a message, including its key, headers and position, to a record."""

    @abstractmethod
    def deserialize(self, record: KafkaRecord) -> Any:
        """The record for a message; None to skip it."""

    def produced_type(self) -> TypeInformation | None:
        """The type of the records, if known."""
        return None

    @staticmethod
    def of(
        function: Callable[[KafkaRecord], Any], type_info: Any = None
    ) -> KafkaRecordDeserializationSchema:
        """Apply a function to each message."""
        return _ByFunction(function, None if type_info is None else as_type_info(type_info))

    @staticmethod
    def rows() -> KafkaRecordDeserializationSchema:
        """Columnar rows of topic, partition, offset, timestamp, key, value and headers."""
        return _RecordsAsRows()

    @staticmethod
    def value_only(schema: DeserializationSchema) -> KafkaRecordDeserializationSchema:
        """Decode each value with a schema; messages without a value are skipped."""
        return ValueOnly(schema)


class ValueOnly(KafkaRecordDeserializationSchema):
    """Decodes each value with a schema; messages without a value are skipped."""

    def __init__(self, schema: DeserializationSchema) -> None:
        if not isinstance(schema, DeserializationSchema):
            raise TypeError(f"value_only() takes a DeserializationSchema, not {schema!r}")
        self.schema = schema

    def deserialize(self, record: KafkaRecord) -> Any:
        return None if record.value is None else self.schema.deserialize(record.value)

    def produced_type(self) -> TypeInformation | None:
        return self.schema.produced_type()


class _ByFunction(KafkaRecordDeserializationSchema):
    def __init__(
        self, function: Callable[[KafkaRecord], Any], type_info: TypeInformation | None
    ) -> None:
        self._function = function
        self._type = type_info

    def deserialize(self, record: KafkaRecord) -> Any:
        return self._function(record)

    def produced_type(self) -> TypeInformation | None:
        return self._type


class _RecordsAsRows(KafkaRecordDeserializationSchema):
    def deserialize(self, record: KafkaRecord) -> Any:
        return tuple(record)

    def produced_type(self) -> TypeInformation:
        return ROW_TYPE


class Decoded(NamedTuple):
    """The records of the first messages, and why the next message could not be decoded."""

    batch: Batch
    taken: int
    problem: str | None = None


class Decoder(ABC):
    """Decodes confluent-kafka messages, which must not be errors, into batches."""

    skips_undecodable = False

    def __init__(self, format: ArrowFormat | None) -> None:
        self.format = format

    @abstractmethod
    def decode(self, messages: Sequence[Any]) -> Batch:
        """The records in order, with Kafka's timestamps; raises UnreadableMessages."""

    def decode_some(self, messages: Sequence[Any]) -> Decoded:
        """The records up to the first message that cannot be decoded, or without such messages."""
        try:
            return Decoded(self.decode(messages), len(messages))
        except UnreadableMessages as problem:
            if self.skips_undecodable:
                good = self._decodable(messages)
                found = self.decode(good) if good else Batch.of_records([], self.format)
                return Decoded(found, len(messages))
            return self._up_to_the_first_bad_one(messages, problem)

    def _up_to_the_first_bad_one(
        self, messages: Sequence[Any], problem: UnreadableMessages
    ) -> Decoded:
        good, bad, reason = 0, len(messages), str(problem)
        while bad - good > 1:
            middle = (good + bad) // 2
            try:
                self.decode(messages[good:middle])
                good = middle
            except UnreadableMessages:
                bad = middle
        if good:
            return Decoded(self.decode(messages[:good]), good, reason)
        try:
            self.decode(messages[:1])
        except UnreadableMessages as alone:
            reason = str(alone)
        return Decoded(Batch.of_records([], self.format), 0, reason)

    def _decodable(self, messages: Sequence[Any]) -> Sequence[Any]:
        try:
            self.decode(messages)
        except UnreadableMessages:
            if len(messages) == 1:
                return ()
            middle = len(messages) // 2
            return [*self._decodable(messages[:middle]), *self._decodable(messages[middle:])]
        return messages


def decoder_of(schema: KafkaRecordDeserializationSchema, format: ArrowFormat | None) -> Decoder:
    """The fastest decoder for this schema and stream format."""
    if (
        isinstance(schema, _RecordsAsRows)
        and format is not None
        and format == arrow_format(ROW_TYPE)
    ):
        return RowDecoder(format)
    if isinstance(schema, ValueOnly):
        values = schema.schema
        if isinstance(values, RowDeserializationSchema):
            return RowValueDecoder(values, format)
        if type(values) is SimpleStringSchema and values.is_utf8 and format == _TEXT:
            return TextDecoder(format)
        return ValueDecoder(values, format)
    return RecordDecoder(schema, format)


class RecordDecoder(Decoder):
    """One message at a time."""

    def __init__(
        self, schema: KafkaRecordDeserializationSchema, format: ArrowFormat | None
    ) -> None:
        super().__init__(format)
        self._schema = schema

    def decode(self, messages: Sequence[Any]) -> Batch:
        return _one_by_one(lambda m: self._schema.deserialize(as_record(m)), messages, self.format)


class ValueDecoder(Decoder):
    """One value at a time."""

    def __init__(self, schema: DeserializationSchema, format: ArrowFormat | None) -> None:
        super().__init__(format)
        self._schema = schema

    def decode(self, messages: Sequence[Any]) -> Batch:
        present = [message for message in messages if message.value() is not None]
        deserialize = self._schema.deserialize
        return _one_by_one(lambda m: deserialize(m.value()), present, self.format)


class RowValueDecoder(Decoder):
    """All values at once, as columns."""

    def __init__(self, schema: RowDeserializationSchema, format: ArrowFormat | None) -> None:
        super().__init__(format)
        self._schema = schema
        self.skips_undecodable = schema.skips_undecodable

    def decode(self, messages: Sequence[Any]) -> Batch:
        values, messages = _values(messages)
        if not values:
            return Batch.of_records([], self.format)
        columns = self._schema.deserialize_all(values)
        if self.format == self._schema.format:
            batch = Batch.of_columns(columns, self._schema.format)
        else:
            batch = Batch.of_records(self._schema.format.decode(columns), self.format)
        batch.timestamps = _timestamps(messages)
        return batch


class TextDecoder(Decoder):
    """All values at once, as a column of text."""

    def decode(self, messages: Sequence[Any]) -> Batch:
        assert self.format is not None
        values, messages = _values(messages)
        try:
            column = pa.array(values, pa.binary()).cast(pa.string())
        except pa.ArrowInvalid as error:
            raise UnreadableMessages(str(error)) from None
        columns = pa.RecordBatch.from_arrays([column], schema=self.format.schema)
        return Batch(columns=columns, format=self.format, timestamps=_timestamps(messages))


class RowDecoder(Decoder):
    """Messages with all their parts, as columns."""

    def decode(self, messages: Sequence[Any]) -> Batch:
        assert self.format is not None
        stamps = _timestamps(messages)
        headers = [
            [{"f0": name, "f1": value} for name, value in message.headers() or ()]
            for message in messages
        ]
        parts = [
            [message.topic() for message in messages],
            [message.partition() for message in messages],
            [message.offset() for message in messages],
            [message.timestamp()[1] for message in messages],
            [message.key() for message in messages],
            [message.value() for message in messages],
            headers,
        ]
        schema = self.format.schema
        arrays = [pa.array(values, field.type) for values, field in zip(parts, schema, strict=True)]
        columns = pa.RecordBatch.from_arrays(arrays, schema=schema)
        return Batch(columns=columns, format=self.format, timestamps=stamps)


def as_record(message: Any) -> KafkaRecord:
    return KafkaRecord(
        message.topic(),
        message.partition(),
        message.offset(),
        message.timestamp()[1],
        message.key(),
        message.value(),
        message.headers() or [],
    )


def _one_by_one(
    deserialize: Callable[[Any], Any], messages: Sequence[Any], format: ArrowFormat | None
) -> Batch:
    records, positions = [], []
    try:
        for position, message in enumerate(messages):
            record = deserialize(message)
            if record is not None:
                records.append(record)
                positions.append(position)
    except Exception as error:
        raise UnreadableMessages(f"{type(error).__name__}: {error}") from None
    stamps = _timestamps(messages)
    if stamps is not None and len(records) < len(messages):
        stamps = stamps[positions]
    return Batch(records=records, format=format, timestamps=stamps)


def _values(messages: Sequence[Any]) -> tuple[list[bytes], Sequence[Any]]:
    """The non-null values, and their messages."""
    values = list(map(_VALUE, messages))
    if None in values:
        messages = [message for message in messages if message.value() is not None]
        values = [value for value in values if value is not None]
    return values, messages


def _timestamps(messages: Sequence[Any]) -> npt.NDArray[np.int64] | None:
    stamps = np.fromiter(map(itemgetter(1), map(_TIMESTAMP, messages)), np.int64, len(messages))
    if len(stamps) and stamps.max() < 0:
        return None
    return np.where(stamps < 0, NO_TIMESTAMP, stamps)
