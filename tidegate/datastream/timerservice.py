"""`TimerService`: time and timers of a key."""

from tidegate.operators.functions import TimerService

__all__ = ["TimerService"]
