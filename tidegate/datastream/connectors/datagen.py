"""Generated records as a source."""

from tidegate.connectors.datagen import DataGeneratorSource

__all__ = ["DataGeneratorSource"]
