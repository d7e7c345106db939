"""The context of process functions on streams without keys."""

from __future__ import annotations

from tidegate.core.clock import Clock
from tidegate.operators.functions import CoProcessFunction, ProcessFunction, TimerService
from tidegate.stream.batch import NO_TIMESTAMP
from tidegate.stream.elements import NO_WATERMARK


class UnkeyedContext(ProcessFunction.Context, CoProcessFunction.Context, TimerService):
    """The context of a process function on a stream without keys: time, but no timers."""

    def __init__(self, clock: Clock, watermark: int = NO_WATERMARK) -> None:
        self._clock = clock
        self.current: int | None = None
        self.watermark = watermark

    def timer_service(self) -> TimerService:
        return self

    def timestamp(self) -> int | None:
        return None if self.current == NO_TIMESTAMP else self.current

    def current_processing_time(self) -> int:
        return int(self._clock.time() * 1000)

    def current_watermark(self) -> int:
        return self.watermark

    def register_processing_time_timer(self, timestamp: int) -> None:
        self._refuse()

    def register_event_time_timer(self, timestamp: int) -> None:
        self._refuse()

    def delete_processing_time_timer(self, timestamp: int) -> None:
        self._refuse()

    def delete_event_time_timer(self, timestamp: int) -> None:
        self._refuse()

    @staticmethod
    def _refuse() -> None:
        raise TypeError("timers belong to a key: call key_by() and use a KeyedProcessFunction")
