"""`Row` and what it says about the table it belongs to."""

from tidegate.types.row import Row, RowKind

__all__ = ["Row", "RowKind"]
