"""The common parts of the contexts of process functions: time, timers, key."""

from __future__ import annotations

from abc import ABC, abstractmethod
from enum import Enum, auto
from typing import Any


class TimeDomain(Enum):
    """Which clock a timer follows."""

    EVENT_TIME = auto()
    PROCESSING_TIME = auto()


class TimerService(ABC):
    """The time, and the timers of the current key, in milliseconds since the epoch."""

    @abstractmethod
    def current_processing_time(self) -> int:
        """The time of the subtask's machine, in milliseconds."""

    @abstractmethod
    def current_watermark(self) -> int:
        """The event time that the operator has reached, in milliseconds."""

    @abstractmethod
    def register_processing_time_timer(self, timestamp: int) -> None:
        """Call `on_timer` once at this time; a key has at most one timer for one time."""

    @abstractmethod
    def register_event_time_timer(self, timestamp: int) -> None:
        """Call `on_timer` when event time reaches this timestamp."""

    @abstractmethod
    def delete_processing_time_timer(self, timestamp: int) -> None:
        """Delete the timer of the current key for this processing time."""

    @abstractmethod
    def delete_event_time_timer(self, timestamp: int) -> None:
        """Delete the timer of the current key for this event time."""


class ContextBase(ABC):
    """Given with a record."""

    @abstractmethod
    def timer_service(self) -> TimerService: ...

    @abstractmethod
    def timestamp(self) -> int | None:
        """Event time of the record in milliseconds; None on a stream without event time."""


class KeyedContextBase(ContextBase):
    """Given with a record of a keyed stream."""

    @abstractmethod
    def get_current_key(self) -> Any: ...


class OnTimerContextBase(KeyedContextBase):
    """Given with a timer."""

    @abstractmethod
    def time_domain(self) -> TimeDomain: ...
