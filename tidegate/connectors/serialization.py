"""Records as bytes and back: what connectors to queues are given."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any


class SerializationSchema(ABC):
    """How a record becomes the bytes of a message."""

    @abstractmethod
    def serialize(self, value: Any) -> bytes: ...


class DeserializationSchema(ABC):
    """How the bytes of a message become a record."""

    @abstractmethod
    def deserialize(self, message: bytes) -> Any: ...


class SimpleStringSchema(SerializationSchema, DeserializationSchema):
    """Text in a charset."""

    def __init__(self, charset: str = "UTF-8") -> None:
        "".encode(charset)
        self._charset = charset

    def serialize(self, value: Any) -> bytes:
        return str(value).encode(self._charset)

    def deserialize(self, message: bytes) -> str:
        return message.decode(self._charset)


class ByteArraySchema(SerializationSchema, DeserializationSchema):
    """Bytes as they are."""

    def serialize(self, value: Any) -> bytes:
        return bytes(value)

    def deserialize(self, message: bytes) -> bytes:
        return message
