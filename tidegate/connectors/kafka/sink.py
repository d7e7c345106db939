"""Kafka as a sink."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any, Self

from tidegate.connectors.guarantee import Delivery, DeliveryGuarantee
from tidegate.connectors.kafka.producer_settings import ProducerSettings
from tidegate.connectors.kafka.record_serialization import (
    KafkaRecordSerializationSchema,
    Serializer,
)
from tidegate.connectors.sink import Committer, CommittingWriter, SupportsCommitter, WriterContext
from tidegate.core.errors import ConfigError, UserError
from tidegate.core.fluent import FluentBuilder

_DELIVERIES = {
    DeliveryGuarantee.NONE: "does not wait for acknowledgements",
    DeliveryGuarantee.AT_LEAST_ONCE: "repeats results after a failure",
    DeliveryGuarantee.EXACTLY_ONCE: "commits Kafka transactions with the checkpoint",
}
_PREFIX = "tidegate"


class KafkaSink(SupportsCommitter):
    """Writes records to topics.

    With exactly-once, messages are written immediately but in transactions, which are committed
    when the next checkpoint is complete. From then on, consumers with
    `isolation.level=read_committed` see them, once. Without checkpoints, that is at the end of the
    input.
    """

    def __init__(
        self,
        bootstrap_servers: str,
        record_serializer: KafkaRecordSerializationSchema,
        *,
        delivery_guarantee: DeliveryGuarantee = DeliveryGuarantee.AT_LEAST_ONCE,
        transactional_id_prefix: str = _PREFIX,
        properties: Mapping[str, Any] | None = None,
    ) -> None:
        given = {**(properties or {}), "bootstrap.servers": bootstrap_servers}
        self._settings = ProducerSettings.of(given)
        self._serializer = record_serializer
        self._guarantee = delivery_guarantee
        self._prefix = transactional_id_prefix

    @staticmethod
    def builder() -> KafkaSinkBuilder:
        return KafkaSinkBuilder()

    def delivery(self) -> Delivery:
        commits = self._guarantee is DeliveryGuarantee.EXACTLY_ONCE
        return Delivery(self._guarantee, _DELIVERIES[self._guarantee], commits)

    def create_writer(self, context: WriterContext) -> CommittingWriter:
        _require_packages()
        if self._guarantee is DeliveryGuarantee.EXACTLY_ONCE:
            return self._transactional_writer(context)
        from tidegate.connectors.kafka.producing import PlainWriter

        waits = self._guarantee is DeliveryGuarantee.AT_LEAST_ONCE
        return PlainWriter(self._settings, self._serializer, waits_at_barriers=waits)

    def _transactional_writer(self, context: WriterContext) -> CommittingWriter:
        from tidegate.connectors.kafka.broker_client import BrokerClient
        from tidegate.connectors.kafka.transaction_ids import TransactionalIdNames
        from tidegate.connectors.kafka.transactional_writer import TransactionalWriter
        from tidegate.connectors.kafka.transactions import BrokerTransactions

        names = TransactionalIdNames(self._prefix, context.job_id, context.operator_id)
        transactions = BrokerTransactions(BrokerClient(self._settings))
        return TransactionalWriter(self._settings, self._serializer, names, transactions, context)

    def create_committer(self, context: WriterContext) -> Committer:
        _require_packages()
        from tidegate.connectors.kafka.broker_client import BrokerClient
        from tidegate.connectors.kafka.transactions import BrokerTransactions, KafkaCommitter

        transactions = BrokerTransactions(BrokerClient(self._settings))
        return KafkaCommitter(transactions, context.permit)


class KafkaSinkBuilder(FluentBuilder):
    """Settings of a KafkaSink, under PyFlink's names."""

    def __init__(self) -> None:
        super().__init__()
        self._properties: dict[str, Any] = {}

    def set_bootstrap_servers(self, bootstrap_servers: str) -> Self:
        return self._with(bootstrap_servers=bootstrap_servers)

    def set_delivery_guarantee(self, delivery_guarantee: DeliveryGuarantee) -> Self:
        return self._with(delivery_guarantee=delivery_guarantee)

    def set_transactional_id_prefix(self, transactional_id_prefix: str) -> Self:
        """Set the prefix of transactional ids; job, operator and subtask are appended."""
        return self._with(transactional_id_prefix=transactional_id_prefix)

    def set_record_serializer(self, record_serializer: KafkaRecordSerializationSchema) -> Self:
        return self._with(record_serializer=record_serializer)

    def set_property(self, key: str, value: Any) -> Self:
        """Set a property of the producer, under librdkafka's or Java's name."""
        self._properties[key] = value
        return self

    def build(self) -> KafkaSink:
        if self._chosen.get("record_serializer") is None:
            raise ConfigError("record_serializer", None, "call set_record_serializer()")
        properties = dict(self._properties)
        servers = {"bootstrap_servers": str(properties.get("bootstrap.servers", ""))}
        return KafkaSink(**{**servers, **self._chosen}, properties=properties)


class Semantic(Enum):
    """The delivery guarantees of a FlinkKafkaProducer."""

    NONE = DeliveryGuarantee.NONE
    AT_LEAST_ONCE = DeliveryGuarantee.AT_LEAST_ONCE
    EXACTLY_ONCE = DeliveryGuarantee.EXACTLY_ONCE


class FlinkKafkaProducer(KafkaSink):
    """The sink of older programs: `add_sink(FlinkKafkaProducer(topic, schema, properties))`."""

    def __init__(
        self,
        topic: str,
        serialization_schema: Serializer,
        producer_config: Mapping[str, Any],
        kafka_producer_pool_size: int = 5,
        semantic: Semantic | DeliveryGuarantee = Semantic.AT_LEAST_ONCE,
    ) -> None:
        """The pool size is accepted for compatibility: there are as many producers as needed."""
        super().__init__(
            str(producer_config.get("bootstrap.servers", "")),
            KafkaRecordSerializationSchema(topic, serialization_schema),
            delivery_guarantee=semantic.value if isinstance(semantic, Semantic) else semantic,
            properties=producer_config,
        )


def _require_packages() -> None:
    try:
        import confluent_kafka  # noqa: F401
        import kafka  # noqa: F401
    except ImportError as missing:
        raise UserError(
            f"Kafka needs the packages confluent-kafka and kafka-python ({missing}): "
            "pip install 'tidegate[kafka]'"
        ) from None
