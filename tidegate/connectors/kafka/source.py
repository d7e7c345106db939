"""Kafka topics as a source."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

from tidegate.connectors.guarantee import Replay
from tidegate.connectors.kafka.consumer_settings import (
    CLIENT_ID_PREFIX,
    COMMIT_OFFSETS,
    ConsumerSettings,
)
from tidegate.connectors.kafka.decoding import (
    KafkaRecordDeserializationSchema,
    ValueOnly,
    decoder_of,
)
from tidegate.connectors.kafka.enumerator import PartitionDiscovery
from tidegate.connectors.kafka.offsets import KafkaOffsetResetStrategy, KafkaOffsetsInitializer
from tidegate.connectors.kafka.partitions import KafkaTopicPartition, Subscription
from tidegate.connectors.kafka.reader import KafkaReader
from tidegate.connectors.serialization import DeserializationSchema
from tidegate.connectors.source import (
    Boundedness,
    ReaderContext,
    Source,
    SourceReader,
    SplitEnumerator,
)
from tidegate.core.errors import ConfigError
from tidegate.core.fluent import FluentBuilder
from tidegate.types.typeinfo import TypeInformation


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaReading:
    """What to read, where to start and stop, and how to decode it."""

    subscription: Subscription
    schema: KafkaRecordDeserializationSchema
    properties: Mapping[str, Any]
    starting: KafkaOffsetsInitializer
    stopping: KafkaOffsetsInitializer | None = None
    is_bounded: bool = False

    @property
    def consumer(self) -> ConsumerSettings:
        return ConsumerSettings(properties=dict(self.properties), has_end=self.stopping is not None)

    @property
    def reset(self) -> KafkaOffsetResetStrategy:
        return self.consumer.offset_reset or self.starting.reset


class KafkaSource(Source):
    """The records of topics. After a failure, it resumes from the offsets of the checkpoint.

    Offsets are part of checkpoints. Those committed to Kafka after a checkpoint only show others
    the progress of the job.
    """

    def __init__(self, reading: KafkaReading) -> None:
        _ = reading.consumer
        self._reading = reading
        self.boundedness = (
            Boundedness.BOUNDED if reading.is_bounded else Boundedness.CONTINUOUS_UNBOUNDED
        )

    @staticmethod
    def builder() -> KafkaSourceBuilder:
        return KafkaSourceBuilder()

    def create_enumerator(self) -> SplitEnumerator:
        reading = self._reading
        return PartitionDiscovery(
            reading.subscription, reading.starting, reading.stopping, reading.consumer
        )

    def create_reader(self, context: ReaderContext) -> SourceReader:
        reading = self._reading
        decoder = decoder_of(reading.schema, context.format)
        name = str(context.subtask)
        return KafkaReader(
            reading.consumer,
            decoder,
            reading.reset,
            name,
            context.undecodable,
            context.has_event_time,
        )

    def produced_type(self) -> TypeInformation | None:
        return self._reading.schema.produced_type()

    def replay(self) -> Replay:
        return Replay(True, "replays from its offsets")


class KafkaSourceBuilder(FluentBuilder):
    """Settings of a KafkaSource, under PyFlink's names."""

    def __init__(self) -> None:
        super().__init__(starting=KafkaOffsetsInitializer.earliest())
        self._properties: dict[str, Any] = {}

    def set_bootstrap_servers(self, bootstrap_servers: str) -> Self:
        return self.set_property("bootstrap.servers", bootstrap_servers)

    def set_group_id(self, group_id: str) -> Self:
        return self.set_property("group.id", group_id)

    def set_client_id_prefix(self, prefix: str) -> Self:
        return self.set_property(CLIENT_ID_PREFIX, prefix)

    def set_topics(self, *topics: str) -> Self:
        if not topics:
            raise ConfigError("topics", topics, "give at least one topic")
        return self._subscribe(Subscription(topics=topics))

    def set_topic_pattern(self, topic_pattern: str) -> Self:
        """Read all topics whose whole name matches a regular expression, including new ones."""
        try:
            re.compile(topic_pattern)
        except re.error as error:
            raise ConfigError("topic_pattern", topic_pattern, f"{error}") from None
        return self._subscribe(Subscription(pattern=topic_pattern))

    def set_partitions(self, partitions: Iterable[KafkaTopicPartition]) -> Self:
        chosen = tuple(sorted(partitions))
        if not chosen:
            raise ConfigError("partitions", chosen, "give at least one partition")
        return self._subscribe(Subscription(partitions=chosen))

    def _subscribe(self, subscription: Subscription) -> Self:
        known = self._chosen.get("subscription")
        if known is not None:
            raise ConfigError(
                "topics",
                str(subscription),
                f"{known} is already set: choose topics, a pattern, or partitions",
            )
        return self._with(subscription=subscription)

    def set_starting_offsets(self, starting_offsets_initializer: KafkaOffsetsInitializer) -> Self:
        return self._with(starting=starting_offsets_initializer)

    def set_unbounded(self, stopping_offsets_initializer: KafkaOffsetsInitializer) -> Self:
        """Stop at these offsets, but run the job as a stream."""
        return self._with(stopping=stopping_offsets_initializer, is_bounded=False)

    def set_bounded(self, stopping_offsets_initializer: KafkaOffsetsInitializer) -> Self:
        """Stop at these offsets, resolved when the job starts; the job then ends."""
        return self._with(stopping=stopping_offsets_initializer, is_bounded=True)

    def set_value_only_deserializer(self, deserialization_schema: DeserializationSchema) -> Self:
        return self._with(schema=ValueOnly(deserialization_schema))

    def set_deserializer(self, record_deserializer: KafkaRecordDeserializationSchema) -> Self:
        """For records that need the key, headers, timestamp or position of a message."""
        return self._with(schema=record_deserializer)

    def set_property(self, key: str, value: Any) -> Self:
        self._properties[key] = value
        return self

    def set_properties(self, props: Mapping[str, Any]) -> Self:
        self._properties.update(props)
        return self

    def build(self) -> KafkaSource:
        if "subscription" not in self._chosen:
            raise ConfigError("topics", None, "give what to read: set_topics('name')")
        if self._chosen.get("schema") is None:
            raise ConfigError(
                "deserializer", None, "give how to read values: set_value_only_deserializer()"
            )
        return KafkaSource(KafkaReading(**self._chosen, properties=dict(self._properties)))


class FlinkKafkaConsumer(KafkaSource):
    """The older form of a Kafka source: topics, a schema and properties.

    It starts from the group's offsets. Partitions without one follow ``auto.offset.reset``, by
    default ``latest``.
    """

    def __init__(
        self,
        topics: str | list[str],
        deserialization_schema: DeserializationSchema,
        properties: Mapping[str, Any],
    ) -> None:
        names = (topics,) if isinstance(topics, str) else tuple(topics)
        if not names:
            raise ConfigError("topics", topics, "give at least one topic")
        reading = KafkaReading(
            subscription=Subscription(topics=names),
            schema=ValueOnly(deserialization_schema),
            properties=dict(properties),
            starting=KafkaOffsetsInitializer.latest(),
        )
        super().__init__(reading)
        self.set_start_from_group_offsets()

    def set_start_from_group_offsets(self) -> Self:
        reset = self._reading.consumer.offset_reset or KafkaOffsetResetStrategy.LATEST
        return self._start_from(KafkaOffsetsInitializer.committed_offsets(reset))

    def set_start_from_earliest(self) -> Self:
        return self._start_from(KafkaOffsetsInitializer.earliest())

    def set_start_from_latest(self) -> Self:
        return self._start_from(KafkaOffsetsInitializer.latest())

    def set_start_from_timestamp(self, startup_offsets_timestamp: int) -> Self:
        """Start at a timestamp, in milliseconds since the epoch."""
        return self._start_from(KafkaOffsetsInitializer.timestamp(startup_offsets_timestamp))

    def set_start_from_specific_offsets(
        self, specific_startup_offsets: Mapping[KafkaTopicPartition, int]
    ) -> Self:
        return self._start_from(KafkaOffsetsInitializer.offsets(specific_startup_offsets))

    def set_commit_offsets_on_checkpoints(self, commit_on_checkpoints: bool) -> Self:
        properties = {**self._reading.properties, COMMIT_OFFSETS: commit_on_checkpoints}
        self._reading = replace(self._reading, properties=properties)
        return self

    def get_produced_type(self) -> TypeInformation | None:
        return self.produced_type()

    def _start_from(self, starting: KafkaOffsetsInitializer) -> Self:
        self._reading = replace(self._reading, starting=starting)
        return self
