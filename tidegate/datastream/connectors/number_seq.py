"""A sequence of numbers as a source."""

from tidegate.connectors.sequence import NumberSequenceSource

__all__ = ["NumberSequenceSource"]
