"""Kafka clusters that change: PyFlink's names, which only wrap Java classes."""

from tidegate.common.java_only import java_only

_ADVICE = "Use KafkaSource, which discovers new partitions of its topics."

DynamicKafkaSource = java_only("DynamicKafkaSource", _ADVICE)
DynamicKafkaSourceBuilder = java_only("DynamicKafkaSourceBuilder", _ADVICE)
KafkaMetadataService = java_only("KafkaMetadataService", _ADVICE)
KafkaRecordDeserializationSchema = java_only("KafkaRecordDeserializationSchema", _ADVICE)
KafkaStreamSetSubscriber = java_only("KafkaStreamSetSubscriber", _ADVICE)
KafkaStreamSubscriber = java_only("KafkaStreamSubscriber", _ADVICE)
SingleClusterTopicMetadataService = java_only("SingleClusterTopicMetadataService", _ADVICE)
StreamPatternSubscriber = java_only("StreamPatternSubscriber", _ADVICE)

__all__ = [
    "DynamicKafkaSource",
    "DynamicKafkaSourceBuilder",
    "KafkaMetadataService",
    "KafkaRecordDeserializationSchema",
    "KafkaStreamSetSubscriber",
    "KafkaStreamSubscriber",
    "SingleClusterTopicMetadataService",
    "StreamPatternSubscriber",
]
