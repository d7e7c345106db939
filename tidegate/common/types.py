"""`Row`, and the kind of change that it represents."""

from tidegate.types.row import Row, RowKind

__all__ = ["Row", "RowKind"]
