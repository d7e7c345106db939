"""`RuntimeExecutionMode`: whether a bounded job runs as a stream or as a batch."""

from tidegate.core.modes import RuntimeExecutionMode

__all__ = ["RuntimeExecutionMode"]
