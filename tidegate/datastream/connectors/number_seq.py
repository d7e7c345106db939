"""Numbers in order as a source."""

from tidegate.connectors.sequence import NumberSequenceSource

__all__ = ["NumberSequenceSource"]
