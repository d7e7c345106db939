"""Flink's serializers: PyFlink's name, which only wraps Java classes."""

from tidegate.common.java_only import java_only

TypeSerializer = java_only("TypeSerializer", "Declare a type, or let records be pickled.")

__all__ = ["TypeSerializer"]
