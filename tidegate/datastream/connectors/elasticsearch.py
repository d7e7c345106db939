"""Elasticsearch: PyFlink's names, which only wrap Java classes."""

from tidegate.common.java_only import java_only

_ADVICE = "Write your own Sink with an Elasticsearch client."

Elasticsearch6SinkBuilder = java_only("Elasticsearch6SinkBuilder", _ADVICE)
Elasticsearch7SinkBuilder = java_only("Elasticsearch7SinkBuilder", _ADVICE)
ElasticsearchEmitter = java_only("ElasticsearchEmitter", _ADVICE)
ElasticsearchSink = java_only("ElasticsearchSink", _ADVICE)
FlushBackoffType = java_only("FlushBackoffType", _ADVICE)

__all__ = [
    "Elasticsearch6SinkBuilder",
    "Elasticsearch7SinkBuilder",
    "ElasticsearchEmitter",
    "ElasticsearchSink",
    "FlushBackoffType",
]
