"""Pulsar: PyFlink's names, which only wrap Java classes."""

from tidegate.common.java_only import java_only

_ADVICE = "Write your own Source and Sink with a Pulsar client."

MessageDelayer = java_only("MessageDelayer", _ADVICE)
PulsarSink = java_only("PulsarSink", _ADVICE)
PulsarSinkBuilder = java_only("PulsarSinkBuilder", _ADVICE)
PulsarSource = java_only("PulsarSource", _ADVICE)
PulsarSourceBuilder = java_only("PulsarSourceBuilder", _ADVICE)
RangeGenerator = java_only("RangeGenerator", _ADVICE)
StartCursor = java_only("StartCursor", _ADVICE)
StopCursor = java_only("StopCursor", _ADVICE)
TopicRoutingMode = java_only("TopicRoutingMode", _ADVICE)

__all__ = [
    "MessageDelayer",
    "PulsarSink",
    "PulsarSinkBuilder",
    "PulsarSource",
    "PulsarSourceBuilder",
    "RangeGenerator",
    "StartCursor",
    "StopCursor",
    "TopicRoutingMode",
]
