"""Flink's state and fault tolerance for PySpark."""

__version__ = "0.1.0"
