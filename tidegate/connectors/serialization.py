"""Schemas that convert records to bytes and back, for message queues; charsets of lines."""

from __future__ import annotations

import codecs
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from tidegate.core.errors import ConfigError
from tidegate.stream.batch import Batch
from tidegate.types.typeinfo import TypeInformation, Types


class SerializationSchema(ABC):
    """Converts a record to the bytes of a message."""

    @abstractmethod
    def serialize(self, value: Any) -> bytes:
        """Encode a record."""

    def serialize_batch(self, batch: Batch) -> Sequence[bytes | str | None]:
        """Encode many records at once; text is encoded as UTF-8."""
        return [self.serialize(record) for record in batch.records]


class DeserializationSchema(ABC):
    """Converts the bytes of a message to a record."""

    @abstractmethod
    def deserialize(self, message: bytes) -> Any:
        """Decode a record; None skips the message."""

    def produced_type(self) -> TypeInformation | None:
        """The type of the records, if the schema knows it; a declared type takes precedence."""
        return None


class SimpleStringSchema(SerializationSchema, DeserializationSchema):
    """Text in a charset."""

    def __init__(self, charset: str = "UTF-8") -> None:
        "".encode(charset)
        self._charset = charset

    @property
    def is_utf8(self) -> bool:
        """Whether the text is encoded as UTF-8."""
        return codecs.lookup(self._charset).name == "utf-8"

    def serialize(self, value: Any) -> bytes:
        """The bytes of a text."""
        return str(value).encode(self._charset)

    def deserialize(self, message: bytes) -> str:
        return message.decode(self._charset)

    def produced_type(self) -> TypeInformation:
        return Types.STRING()


class ByteArraySchema(SerializationSchema, DeserializationSchema):
    """Bytes as they are."""

    def serialize(self, value: Any) -> bytes:
        """The bytes of a record: itself."""
        return bytes(value)

    def deserialize(self, message: bytes) -> bytes:
        return message

    def produced_type(self) -> TypeInformation:
        return Types.PRIMITIVE_ARRAY(Types.BYTE())


def line_charset(charset: str) -> str:
    """The name of a charset in which lines end with byte 10; raises ConfigError for others."""
    try:
        known = codecs.lookup(charset).name
        line_end = "\n".encode(known)
    except LookupError:
        raise ConfigError("charset", charset, "give a charset that Python knows") from None
    if line_end != b"\n":
        raise ConfigError("charset", charset, "lines must end with byte 10: convert them to UTF-8")
    return known
