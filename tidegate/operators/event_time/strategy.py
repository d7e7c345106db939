"""`WatermarkStrategy`: how records get timestamps, and how watermarks are generated.

    WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_seconds(5))
        .with_timestamp_assigner("event_time")          a column, a TimestampAssigner or a function
        .with_idleness(Duration.of_minutes(1))

All times are milliseconds since the epoch.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

from tidegate.core.durations import DurationLike, as_milliseconds, as_timedelta
from tidegate.core.errors import ConfigError
from tidegate.stream.elements import Watermark


class TimestampAssigner(ABC):
    """The event time of a record."""

    @abstractmethod
    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        """Milliseconds since the epoch.

        `record_timestamp` is the current timestamp, from the source or an earlier assigner; the
        smallest 64-bit integer if there is none.
        """


class WatermarkOutput(ABC):
    """Where a generator puts its watermarks."""

    @abstractmethod
    def emit_watermark(self, watermark: Watermark | int) -> None:
        """Emit a watermark: no earlier record follows. Ignored unless it exceeds the last."""

    @abstractmethod
    def mark_idle(self) -> None:
        """Become idle until the next watermark or `mark_active`: do not hold event time back."""

    @abstractmethod
    def mark_active(self) -> None:
        """Take part in event time again."""


class WatermarkGenerator(ABC):
    """Generates watermarks from records; each split of a source has its own generator.

    Its attributes are part of checkpoints and are restored with them.
    """

    @abstractmethod
    def on_event(self, event: Any, event_timestamp: int, output: WatermarkOutput) -> None:
        """Called for every record; watermarks emitted here follow right after the record."""

    @abstractmethod
    def on_periodic_emit(self, output: WatermarkOutput) -> None:
        """Called every `pipeline.auto-watermark-interval`, between two batches of records."""


@dataclass(frozen=True, slots=True)
class WatermarkAlignment:
    """A group of sources that are at most `max_drift` ahead of the slowest one."""

    group: str
    max_drift: int
    """Milliseconds of event time."""
    update_interval: timedelta


TimestampAssignerLike = TimestampAssigner | Callable[[Any, int], int] | str | int
"""A TimestampAssigner, a function of value and current timestamp, or a timestamp field."""
GeneratorFactory = Callable[[], WatermarkGenerator]


@dataclass(frozen=True, slots=True, repr=False)
class WatermarkStrategy:
    """How records get timestamps and watermarks are generated. Setters return a changed copy."""

    out_of_orderness: int | None = None
    """Milliseconds that watermarks stay behind the latest timestamp; None: no such watermarks."""
    generator: GeneratorFactory | None = None
    """Creates the user's own generators."""
    assigner: TimestampAssignerLike | None = None
    idle_timeout: timedelta | None = None
    alignment: WatermarkAlignment | None = None

    @staticmethod
    def no_watermarks() -> WatermarkStrategy:
        """Emit no watermarks: event time does not advance until the end of the input."""
        return WatermarkStrategy()

    @staticmethod
    def for_monotonous_timestamps() -> WatermarkStrategy:
        """For splits with ascending timestamps: the watermark follows the latest one."""
        return WatermarkStrategy(out_of_orderness=0)

    @staticmethod
    def for_bounded_out_of_orderness(max_out_of_orderness: DurationLike) -> WatermarkStrategy:
        """For records that are out of order by at most this much."""
        bound = as_milliseconds(max_out_of_orderness)
        if bound < 0:
            raise ConfigError("max_out_of_orderness", max_out_of_orderness, "give 0 or more")
        return WatermarkStrategy(out_of_orderness=bound)

    @staticmethod
    def for_generator(generator: GeneratorFactory) -> WatermarkStrategy:
        """Use your own generator: a WatermarkGenerator class, or a function that creates one."""
        given: object = generator
        if isinstance(given, WatermarkGenerator) or not callable(given):
            raise TypeError(
                "for_generator() needs a WatermarkGenerator class or a function that returns a new "
                f"generator, because each split has its own; got {generator!r}"
            )
        return WatermarkStrategy(generator=generator)

    def with_timestamp_assigner(
        self, timestamp_assigner: TimestampAssignerLike
    ) -> WatermarkStrategy:
        """Take timestamps from the records: with a function, or from a field of a typed stream.

        With a field, no function is called per record. The field holds an integer (milliseconds
        since the epoch) or a point in time.
        """
        given: object = timestamp_assigner
        is_function = callable(given) and not isinstance(given, type)
        if not (is_function or isinstance(given, TimestampAssigner | str | int)):
            raise TypeError(
                "with_timestamp_assigner() needs a TimestampAssigner, a function of the value and "
                f"its current timestamp, or the name of a field; got {given!r}"
            )
        return replace(self, assigner=timestamp_assigner)

    def with_idleness(self, idle_timeout: DurationLike) -> WatermarkStrategy:
        """Ignore splits that have had no record for this long, until their next record."""
        timeout = as_timedelta(idle_timeout)
        if timeout <= timedelta(0):
            raise ConfigError("idle_timeout", idle_timeout, "give a duration above zero")
        return replace(self, idle_timeout=timeout)

    def with_watermark_alignment(
        self,
        watermark_group: str,
        max_allowed_watermark_drift: DurationLike,
        update_interval: DurationLike | None = None,
    ) -> WatermarkStrategy:
        """Pause the sources of a group that are too far ahead of its slowest one."""
        every = timedelta(seconds=1) if update_interval is None else as_timedelta(update_interval)
        drift = as_milliseconds(max_allowed_watermark_drift)
        if drift < 0:
            raise ConfigError("max_allowed_watermark_drift", drift, "give 0 or more")
        group = str.__str__(watermark_group)  # slots cannot import an enum of the program
        return replace(self, alignment=WatermarkAlignment(group, drift, every))

    @property
    def is_used(self) -> bool:
        """Whether it does anything to records or watermarks."""
        makes_watermarks = self.out_of_orderness is not None or self.generator is not None
        return makes_watermarks or self.assigner is not None or self.idle_timeout is not None

    def __repr__(self) -> str:
        if self.generator is not None:
            return f"WatermarkStrategy.for_generator({self.generator!r})"
        if self.out_of_orderness is None:
            return "WatermarkStrategy.no_watermarks()"
        if self.out_of_orderness == 0:
            return "WatermarkStrategy.for_monotonous_timestamps()"
        return f"WatermarkStrategy.for_bounded_out_of_orderness({self.out_of_orderness})"
