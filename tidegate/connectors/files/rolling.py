"""When a part file is closed, and which bucket a record belongs to."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import numpy as np

from tidegate.core.durations import DurationLike, as_timedelta
from tidegate.core.errors import ConfigError
from tidegate.core.memory_size import MemorySize
from tidegate.stream.batch import Batch


@dataclass(frozen=True, slots=True, kw_only=True)
class RollingPolicy:
    """Limits of a part file. A checkpoint always closes all open files."""

    part_size: int | None = 128 << 20
    """Maximum size in bytes; None: no limit."""
    rollover_interval: timedelta | None = timedelta(minutes=1)
    """How long a file may stay open."""
    inactivity_interval: timedelta | None = timedelta(minutes=1)
    """How long a file may stay open without a new record."""

    @staticmethod
    def default_rolling_policy(
        part_size: MemorySize | int | str = 128 << 20,
        rollover_interval: DurationLike = 60_000,
        inactivity_interval: DurationLike = 60_000,
    ) -> RollingPolicy:
        """Close files by size and time; times in milliseconds or as `timedelta`."""
        return RollingPolicy(
            part_size=MemorySize.parse(part_size).get_bytes(),
            rollover_interval=as_timedelta(rollover_interval),
            inactivity_interval=as_timedelta(inactivity_interval),
        )

    @staticmethod
    def on_checkpoint_rolling_policy() -> RollingPolicy:
        """Close files only at a checkpoint or at the end of the input."""
        return RollingPolicy(part_size=None, rollover_interval=None, inactivity_interval=None)

    def is_full(self, size: int, opened_at: float, written_at: float, now: float) -> bool:
        """Whether a file must be closed; times in seconds."""
        return (
            (self.part_size is not None and size >= self.part_size)
            or _is_over(self.rollover_interval, opened_at, now)
            or _is_over(self.inactivity_interval, written_at, now)
        )


def _is_over(limit: timedelta | None, since: float, now: float) -> bool:
    return limit is not None and now - since >= limit.total_seconds()


class BucketAssigner(ABC):
    """Chooses a subdirectory of the sink's directory for each record."""

    @abstractmethod
    def split(self, batch: Batch, now: float) -> list[tuple[str, Batch]]:
        """The records of a batch by bucket, in order."""

    @staticmethod
    def base_path_bucket_assigner() -> BucketAssigner:
        """Put all records into the directory of the sink."""
        return _OneBucket(_the_base_path)

    @staticmethod
    def date_time_bucket_assigner(
        format_str: str = "yyyy-MM-dd--HH", timezone_id: str | None = None
    ) -> BucketAssigner:
        """By the time of writing, local or in a zone like "Europe/Berlin".

        The format is Java's, or that of `strftime` if it contains a %.
        """
        return _OneBucket(_TimeName(format_str, timezone_id))

    @staticmethod
    def by(bucket_of: Callable[[Any], str]) -> BucketAssigner:
        """By a function of the record."""
        return _BucketsByFunction(bucket_of)


def _the_base_path(now: float) -> str:
    return ""


class _TimeName:
    _JAVA = (("yyyy", "%Y"), ("MM", "%m"), ("dd", "%d"), ("HH", "%H"), ("mm", "%M"), ("ss", "%S"))

    def __init__(self, format_str: str, timezone_id: str | None = None) -> None:
        if timezone_id is not None:
            try:
                ZoneInfo(timezone_id)
            except (ZoneInfoNotFoundError, ValueError):
                raise ConfigError(
                    "timezone_id", timezone_id, "give a zone like 'UTC' or 'Europe/Berlin'"
                ) from None
        self._zone = timezone_id
        if "%" not in format_str:
            for java, python in self._JAVA:
                format_str = format_str.replace(java, python)
        self._format = format_str

    def __call__(self, now: float) -> str:
        zone = None if self._zone is None else ZoneInfo(self._zone)
        return datetime.fromtimestamp(now, UTC).astimezone(zone).strftime(self._format)


class _OneBucket(BucketAssigner):
    def __init__(self, name_at: Callable[[float], str]) -> None:
        self._name_at = name_at

    def split(self, batch: Batch, now: float) -> list[tuple[str, Batch]]:
        return [(self._name_at(now), batch)]


class _BucketsByFunction(BucketAssigner):
    def __init__(self, bucket_of: Callable[[Any], str]) -> None:
        self._bucket_of = bucket_of

    def split(self, batch: Batch, now: float) -> list[tuple[str, Batch]]:
        names = [str(self._bucket_of(record)) for record in batch.records]
        positions: dict[str, list[int]] = {}
        for position, name in enumerate(names):
            positions.setdefault(name, []).append(position)
        if len(positions) == 1:
            return [(names[0], batch)]
        return [(name, batch.take(np.array(found, np.intp))) for name, found in positions.items()]
