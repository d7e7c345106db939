"""`ExternalizedCheckpointRetention`: what happens to the last checkpoint of a cancelled job."""

from tidegate.core.modes import ExternalizedCheckpointRetention

__all__ = ["ExternalizedCheckpointRetention"]
