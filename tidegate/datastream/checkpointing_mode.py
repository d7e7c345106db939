"""`CheckpointingMode`: what a checkpoint guarantees after a recovery."""

from tidegate.core.modes import CheckpointingMode

__all__ = ["CheckpointingMode"]
