"""Kafka topics as sources and sinks."""

from tidegate.connectors.guarantee import DeliveryGuarantee
from tidegate.connectors.kafka.decoding import KafkaRecord, KafkaRecordDeserializationSchema
from tidegate.connectors.kafka.offsets import KafkaOffsetResetStrategy, KafkaOffsetsInitializer
from tidegate.connectors.kafka.partitions import KafkaTopicPartition
from tidegate.connectors.kafka.record_serialization import (
    KafkaRecordSerializationSchema,
    KafkaRecordSerializationSchemaBuilder,
    KafkaTopicSelector,
)
from tidegate.connectors.kafka.sink import FlinkKafkaProducer, KafkaSink, KafkaSinkBuilder, Semantic
from tidegate.connectors.kafka.source import FlinkKafkaConsumer, KafkaSource, KafkaSourceBuilder

__all__ = [
    "DeliveryGuarantee",
    "FlinkKafkaConsumer",
    "FlinkKafkaProducer",
    "KafkaOffsetResetStrategy",
    "KafkaOffsetsInitializer",
    "KafkaRecord",
    "KafkaRecordDeserializationSchema",
    "KafkaRecordSerializationSchema",
    "KafkaRecordSerializationSchemaBuilder",
    "KafkaSink",
    "KafkaSinkBuilder",
    "KafkaSource",
    "KafkaSourceBuilder",
    "KafkaTopicPartition",
    "KafkaTopicSelector",
    "Semantic",
]
