"""`OutputTag`: the name of a side output."""

from tidegate.operators.output_tag import OutputTag

__all__ = ["OutputTag"]
