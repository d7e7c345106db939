"""RabbitMQ: PyFlink's names, which only wrap Java classes."""

from tidegate.common.java_only import java_only

_ADVICE = "Use CallbackSource, in durable() for exact recovery, and your own Sink."

RMQConnectionConfig = java_only("RMQConnectionConfig", _ADVICE)
RMQSink = java_only("RMQSink", _ADVICE)
RMQSource = java_only("RMQSource", _ADVICE)

__all__ = ["RMQConnectionConfig", "RMQSink", "RMQSource"]
