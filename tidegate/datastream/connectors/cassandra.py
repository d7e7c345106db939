"""Cassandra: PyFlink's names, which only wrap Java classes."""

from tidegate.common.java_only import java_only

_ADVICE = "Write your own Sink, or send requests with AsyncDataStream."

CassandraCommitter = java_only("CassandraCommitter", _ADVICE)
CassandraFailureHandler = java_only("CassandraFailureHandler", _ADVICE)
CassandraSink = java_only("CassandraSink", _ADVICE)
ClusterBuilder = java_only("ClusterBuilder", _ADVICE)
ConsistencyLevel = java_only("ConsistencyLevel", _ADVICE)
MapperOptions = java_only("MapperOptions", _ADVICE)

__all__ = [
    "CassandraCommitter",
    "CassandraFailureHandler",
    "CassandraSink",
    "ClusterBuilder",
    "ConsistencyLevel",
    "MapperOptions",
]
