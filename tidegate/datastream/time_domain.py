"""`TimeDomain`: which clock a timer follows."""

from tidegate.operators.functions import TimeDomain

__all__ = ["TimeDomain"]
