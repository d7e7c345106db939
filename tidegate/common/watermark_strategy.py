"""Watermark strategies, and what programs of their own are made of."""

from tidegate.operators.event_time.strategy import (
    TimestampAssigner,
    WatermarkGenerator,
    WatermarkOutput,
    WatermarkStrategy,
)
from tidegate.stream.elements import Watermark

__all__ = [
    "TimestampAssigner",
    "Watermark",
    "WatermarkGenerator",
    "WatermarkOutput",
    "WatermarkStrategy",
]
