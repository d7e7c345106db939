"""Watermark alignment: which sources wait because they are too far ahead of their group. Pure.

group "orders", drift 60 s        watermark   group's lowest + drift
source A, subtask 0                12:00:00   12:01:00   reads
source A, subtask 1                12:05:00   12:01:00   waits
source B                         idle, ended             does not count
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tidegate.core.ids import PipelineId
from tidegate.protocol.messages import SlotReport


class WatermarkGroups:
    """The lowest watermark of each group, over all pipelines of a job.

    After a reset, the last reports of a pipeline count until its first step is complete.
    """

    def __init__(self) -> None:
        self._lowest: Mapping[PipelineId, Mapping[str, int]] = {}

    def reported(self, pipeline: PipelineId, reports: Iterable[SlotReport]) -> None:
        """Take the reports of a pipeline's last step."""
        found: dict[str, int] = {}
        for report in reports:
            for source in report.sources.values():
                if source.aligned is not None:
                    group, watermark = source.aligned
                    found[group] = min(found.get(group, watermark), watermark)
        if found != self._lowest.get(pipeline, {}):
            # Replace the mapping rather than change it: steps of other pipelines read it
            # concurrently.
            self._lowest = {**self._lowest, pipeline: found}

    def lowest(self) -> dict[str, int]:
        """The lowest watermark by group; groups without an active source are missing."""
        combined: dict[str, int] = {}
        for found in self._lowest.values():
            for group, watermark in found.items():
                combined[group] = min(combined.get(group, watermark), watermark)
        return combined
