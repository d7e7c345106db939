"""Fields for `select` of a join: of the record of the first stream, or of the second."""

from tidegate.operators.joins.selection import JoinedField, left, right

__all__ = ["JoinedField", "left", "right"]
