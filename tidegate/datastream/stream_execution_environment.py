"""`StreamExecutionEnvironment`, under the name that its module has in PyFlink."""

from tidegate.datastream.environment import StreamExecutionEnvironment

__all__ = ["StreamExecutionEnvironment"]
