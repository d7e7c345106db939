"""Converts records to messages: topic, key, value, headers, timestamp."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import repeat
from typing import Any, Self

from tidegate.connectors.serialization import SerializationSchema
from tidegate.core.errors import ConfigError, UnencodableRecord
from tidegate.core.fluent import FluentBuilder
from tidegate.stream.batch import Batch

Headers = Mapping[str, Any] | Sequence[tuple[str, Any]]
Message = tuple[bytes | str | None, bytes | str | None, int, list[tuple[str, Any]] | None]
"""A message: value, key, milliseconds since the epoch (0 for the time of writing), headers. A plain
tuple, because there is one per record."""
Serializer = SerializationSchema | Callable[[Any], bytes | str | None]


class KafkaTopicSelector(ABC):
    """Chooses the topic of a record."""

    @abstractmethod
    def apply(self, data: Any) -> str: ...


class KafkaRecordSerializationSchema:
    """The topic of a record, and how it is encoded."""

    def __init__(
        self,
        topic: str | KafkaTopicSelector | Callable[[Any], str],
        value: Serializer,
        key: Serializer | None = None,
        headers: Callable[[Any], Headers] | None = None,
    ) -> None:
        self.only_topic = topic if isinstance(topic, str) else None
        """None if every record may have its own topic."""
        self._select = topic.apply if isinstance(topic, KafkaTopicSelector) else topic
        self._value = value
        self._key = key
        self._headers = headers

    @staticmethod
    def builder() -> KafkaRecordSerializationSchemaBuilder:
        return KafkaRecordSerializationSchemaBuilder()

    def send(self, batch: Batch, send: Callable[[str, list[Message]], None]) -> None:
        """Encode the records, and send the messages of each topic in order.

        Raises:
            UnencodableRecord: A record cannot be encoded; those before it are sent.
        """
        try:
            messages = self._messages(batch)
        except Exception as error:
            first, failure = self._first_failure(batch, error)
            for topic, of_topic in self._messages(batch.slice(0, first)) if first else ():
                send(topic, of_topic)
            raise failure from error
        for topic, of_topic in messages:
            send(topic, of_topic)

    def _first_failure(self, batch: Batch, error: Exception) -> tuple[int, UnencodableRecord]:
        for position in range(len(batch)):
            try:
                self._messages(batch.slice(position, position + 1))
            except Exception as found:
                failure = UnencodableRecord(
                    batch.records[position], f"{type(found).__name__}: {found}"
                )
                failure.suspects = range(position, position + 1)
                return position, failure
        raise error

    def _messages(self, batch: Batch) -> Iterable[tuple[str, list[Message]]]:
        keys = repeat(None) if self._key is None else _serialized(self._key, batch)
        stamps = batch.timestamps
        times = repeat(0) if stamps is None else stamps.clip(min=0).tolist()
        select = self._headers
        headers = repeat(None) if select is None else [_pairs(select(r)) for r in batch.records]
        messages = list(zip(_serialized(self._value, batch), keys, times, headers, strict=False))
        if self.only_topic is not None:
            return [(self.only_topic, messages)]
        assert callable(self._select)
        by_topic: dict[str, list[Message]] = {}
        for message, record in zip(messages, batch.records, strict=True):
            by_topic.setdefault(self._select(record), []).append(message)
        return by_topic.items()


class KafkaRecordSerializationSchemaBuilder(FluentBuilder):
    """Settings of the schema, under PyFlink's names."""

    def set_topic(self, topic: str) -> Self:
        return self._with(topic=topic)

    def set_topic_selector(self, topic_selector: KafkaTopicSelector | Callable[[Any], str]) -> Self:
        return self._with(topic=topic_selector)

    def set_key_serialization_schema(self, key_serialization_schema: Serializer) -> Self:
        """Set how keys are encoded; records with the same key go to the same partition."""
        return self._with(key=key_serialization_schema)

    def set_value_serialization_schema(self, value_serialization_schema: Serializer) -> Self:
        return self._with(value=value_serialization_schema)

    def set_header_provider(self, header_provider: Callable[[Any], Headers]) -> Self:
        """Set a function for the headers of a record; without one, writing is faster."""
        return self._with(headers=header_provider)

    def build(self) -> KafkaRecordSerializationSchema:
        if self._chosen.get("topic") is None:
            raise ConfigError("topic", None, "call set_topic() or set_topic_selector()")
        if self._chosen.get("value") is None:
            raise ConfigError(
                "value_serialization_schema", None, "call set_value_serialization_schema()"
            )
        return KafkaRecordSerializationSchema(**self._chosen)


def _pairs(headers: Headers) -> list[tuple[str, Any]]:
    return list(headers.items() if isinstance(headers, Mapping) else headers)


def _serialized(schema: Serializer, batch: Batch) -> Sequence[bytes | str | None]:
    if isinstance(schema, SerializationSchema):
        return schema.serialize_batch(batch)
    return [schema(record) for record in batch.records]
