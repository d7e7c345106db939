"""Kinesis: PyFlink's names, which only wrap Java classes."""

from tidegate.common.java_only import java_only

_ADVICE = "Write your own Source and Sink with boto3."

FlinkKinesisConsumer = java_only("FlinkKinesisConsumer", _ADVICE)
KinesisDeserializationSchema = java_only("KinesisDeserializationSchema", _ADVICE)
KinesisFirehoseSink = java_only("KinesisFirehoseSink", _ADVICE)
KinesisFirehoseSinkBuilder = java_only("KinesisFirehoseSinkBuilder", _ADVICE)
KinesisShardAssigner = java_only("KinesisShardAssigner", _ADVICE)
KinesisStreamsSink = java_only("KinesisStreamsSink", _ADVICE)
KinesisStreamsSinkBuilder = java_only("KinesisStreamsSinkBuilder", _ADVICE)
PartitionKeyGenerator = java_only("PartitionKeyGenerator", _ADVICE)
WatermarkTracker = java_only("WatermarkTracker", _ADVICE)

__all__ = [
    "FlinkKinesisConsumer",
    "KinesisDeserializationSchema",
    "KinesisFirehoseSink",
    "KinesisFirehoseSinkBuilder",
    "KinesisShardAssigner",
    "KinesisStreamsSink",
    "KinesisStreamsSinkBuilder",
    "PartitionKeyGenerator",
    "WatermarkTracker",
]
