"""`CheckpointingMode`: what a checkpoint promises after a recovery."""

from tidegate.core.modes import CheckpointingMode

__all__ = ["CheckpointingMode"]
