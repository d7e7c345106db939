"""Watermarks of one sequence of records: of a split, or of an operator's input."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Final

from tidegate.core.errors import TidegateError
from tidegate.operators.event_time.strategy import (
    WatermarkGenerator,
    WatermarkOutput,
    WatermarkStrategy,
)
from tidegate.operators.user_code import USER_FAILURES, UserCode
from tidegate.stream.batch import Batch
from tidegate.stream.elements import NO_WATERMARK, Watermark, WatermarkStatus

Mark = tuple[int, Watermark | WatermarkStatus]
"""How many records of the batch precede it, and what to emit."""


class Track(ABC):
    """A sequence of records with its own generator and last watermark."""

    def __init__(self, now: float) -> None:
        self.watermark = NO_WATERMARK
        self.is_idle = False
        self.active_at = now
        """When the last records arrived, in seconds of the wall clock."""
        self.failed_at: tuple[int, TidegateError] | None = None
        """The position in the last batch of the record on which the generator failed, and its
        error."""

    @abstractmethod
    def take(self, batch: Batch) -> list[Mark]:
        """Process records; returns what is emitted between them."""

    @property
    @abstractmethod
    def has_news(self) -> bool:
        """Whether there may be something new to emit."""

    @abstractmethod
    def emit(self) -> list[Watermark | WatermarkStatus]:
        """Emit the periodic watermark."""

    @abstractmethod
    def state(self) -> Any:
        """The picklable state of the generator."""

    @abstractmethod
    def resume(self, state: Any) -> None:
        """Restore what `state` returned."""


def create_track(strategy: WatermarkStrategy, user_code: UserCode, now: float) -> Track:
    if strategy.generator is None:
        return BoundedTrack(strategy.out_of_orderness, now)
    with user_code.guard():
        generator = strategy.generator()
        if not isinstance(generator, WatermarkGenerator):
            raise TypeError(f"for_generator() must return a WatermarkGenerator, got {generator!r}")
    return GeneratorTrack(generator, user_code, now)


_NOTHING: Final[list[Mark]] = []


class BoundedTrack(Track):
    """Stays a bound and one millisecond behind the latest timestamp; or emits no watermarks."""

    def __init__(self, bound: int | None, now: float) -> None:
        super().__init__(now)
        self._bound = bound
        self._next = NO_WATERMARK

    def take(self, batch: Batch) -> list[Mark]:
        stamps = batch.timestamps
        if stamps is not None and self._bound is not None:
            self._next = max(self._next, int(stamps.max()) - self._bound - 1, NO_WATERMARK)
        return _NOTHING

    @property
    def has_news(self) -> bool:
        return self._next > self.watermark

    def emit(self) -> list[Watermark | WatermarkStatus]:
        return [Watermark(self._next)] if self.has_news else []

    def state(self) -> int:
        return self._next

    def resume(self, state: int) -> None:
        self._next = max(self._next, state)


class GeneratorTrack(Track):
    """Calls a generator of the user for every record."""

    has_news = True

    def __init__(self, generator: WatermarkGenerator, user_code: UserCode, now: float) -> None:
        super().__init__(now)
        self._generator = generator
        self._user_code = user_code
        self._output = _Marks()

    def take(self, batch: Batch) -> list[Mark]:
        output, on_event = self._output, self._generator.on_event
        records = batch.records
        stamps = batch.timestamps
        times = [NO_WATERMARK] * len(records) if stamps is None else stamps.tolist()
        output.place = 0
        try:
            for record, time in zip(records, times, strict=True):
                output.place += 1
                on_event(record, time, output)
        except USER_FAILURES as error:
            place = output.place - 1
            self.failed_at = place, self._user_code.failure(error, records[place], place)
            output.drop_behind(place)
        return output.taken()

    def emit(self) -> list[Watermark | WatermarkStatus]:
        with self._user_code.guard():
            self._generator.on_periodic_emit(self._output)
        return [element for _, element in self._output.taken()]

    def state(self) -> Any:
        return self._generator.__getstate__()

    def resume(self, state: Any) -> None:
        set_state = getattr(self._generator, "__setstate__", None)
        if set_state is not None:
            set_state(state)
        elif state is not None:
            vars(self._generator).update(state)


class _Marks(WatermarkOutput):
    """Collects what a generator emits, with its position among the records."""

    def __init__(self) -> None:
        self.place = 0
        self._marks: list[Mark] = []

    def taken(self) -> list[Mark]:
        marks, self._marks = self._marks, []
        return marks

    def drop_behind(self, place: int) -> None:
        self._marks = [mark for mark in self._marks if mark[0] <= place]

    def emit_watermark(self, watermark: Watermark | int) -> None:
        if not isinstance(watermark, Watermark):
            watermark = Watermark(int(watermark))
        self._marks.append((self.place, watermark))

    def mark_idle(self) -> None:
        self._marks.append((self.place, WatermarkStatus.IDLE))

    def mark_active(self) -> None:
        self._marks.append((self.place, WatermarkStatus.ACTIVE))
