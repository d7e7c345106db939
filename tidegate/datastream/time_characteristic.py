"""`TimeCharacteristic`: which time older programs say they use."""

from __future__ import annotations

from enum import Enum


class TimeCharacteristic(Enum):
    """Event time is always there, as in Flink since 1.12."""

    ProcessingTime = 0
    IngestionTime = 1
    EventTime = 2
