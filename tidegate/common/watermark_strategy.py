"""Watermark strategies, and the contracts to write your own."""

from tidegate.common.java_only import java_only
from tidegate.operators.event_time.strategy import (
    TimestampAssigner,
    WatermarkGenerator,
    WatermarkOutput,
    WatermarkStrategy,
)
from tidegate.stream.elements import Watermark

__all__ = [
    "AssignerWithPeriodicWatermarksWrapper",
    "TimestampAssigner",
    "Watermark",
    "WatermarkGenerator",
    "WatermarkOutput",
    "WatermarkStrategy",
]


AssignerWithPeriodicWatermarksWrapper = java_only(
    "AssignerWithPeriodicWatermarksWrapper", "Use WatermarkStrategy.for_generator()."
)
