"""Watermark strategies: the names that `from_source` takes. There is no event time yet."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, NoReturn

from tidegate.core.durations import DurationLike
from tidegate.core.errors import GraphError


class TimestampAssigner(ABC):
    """The event time of a record, in milliseconds since the epoch."""

    @abstractmethod
    def extract_timestamp(self, value: Any, record_timestamp: int) -> int: ...


class WatermarkStrategy:
    """How a stream gets its watermarks.

    Both strategies that need no timestamp of the record are accepted and make no watermarks.
    """

    def __init__(self, name: str) -> None:
        self._name = name

    @staticmethod
    def no_watermarks() -> WatermarkStrategy:
        return WatermarkStrategy("no_watermarks")

    @staticmethod
    def for_monotonous_timestamps() -> WatermarkStrategy:
        return WatermarkStrategy("for_monotonous_timestamps")

    @staticmethod
    def for_bounded_out_of_orderness(max_out_of_orderness: DurationLike) -> WatermarkStrategy:
        _refuse("for_bounded_out_of_orderness")

    def with_timestamp_assigner(self, timestamp_assigner: TimestampAssigner) -> WatermarkStrategy:
        _refuse("with_timestamp_assigner")

    def with_idleness(self, idle_timeout: DurationLike) -> WatermarkStrategy:
        _refuse("with_idleness")

    def with_watermark_alignment(
        self,
        watermark_group: str,
        max_allowed_watermark_drift: DurationLike,
        update_interval: DurationLike | None = None,
    ) -> WatermarkStrategy:
        _refuse("with_watermark_alignment")

    def __repr__(self) -> str:
        return f"WatermarkStrategy.{self._name}()"


def _refuse(name: str) -> NoReturn:
    raise GraphError(
        f"WatermarkStrategy.{name}() needs event time, which Tidegate does not have yet: use "
        "WatermarkStrategy.no_watermarks() and processing-time timers"
    )
