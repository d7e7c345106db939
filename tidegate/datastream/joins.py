"""Fields for `select` of a join: of the first or the second stream."""

from tidegate.operators.joins.selection import JoinedField, left, right

__all__ = ["JoinedField", "left", "right"]
