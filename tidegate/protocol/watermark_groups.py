"""Which sources of a group have to wait, because they are too far ahead of its slowest. Pure.

group "orders", drift 60 s        watermark   group's lowest + drift
source A, subtask 0                12:00:00   12:01:00   reads
source A, subtask 1                12:05:00   12:01:00   waits
source B                         idle, ended             has no say
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tidegate.core.ids import PipelineId
from tidegate.protocol.messages import SlotReport


class WatermarkGroups:
    """The lowest watermark of each group, over all pipelines of a job.

    A pipeline that was reset says nothing until its first step is through. What its sources said
    before counts until then.
    """

    def __init__(self) -> None:
        self._lowest: Mapping[PipelineId, Mapping[str, int]] = {}

    def reported(self, pipeline: PipelineId, reports: Iterable[SlotReport]) -> None:
        """This is what the slots of a pipeline said after its last step."""
        found: dict[str, int] = {}
        for report in reports:
            for source in report.sources.values():
                if source.aligned is not None:
                    group, watermark = source.aligned
                    found[group] = min(found.get(group, watermark), watermark)
        if found != self._lowest.get(pipeline, {}):
            # A new mapping: steps of other pipelines read it on threads of their own.
            self._lowest = {**self._lowest, pipeline: found}

    def lowest(self) -> dict[str, int]:
        """By group; those without a source that has a say are missing."""
        combined: dict[str, int] = {}
        for found in self._lowest.values():
            for group, watermark in found.items():
                combined[group] = min(combined.get(group, watermark), watermark)
        return combined
