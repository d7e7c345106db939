"""Flink's input formats: PyFlink's names, which only wrap Java classes."""

from tidegate.common.java_only import java_only

InputFormat = java_only("InputFormat", "Write your own Source, or use FileSource.")

__all__ = ["InputFormat"]
