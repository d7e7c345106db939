"""What to reset when a region failed."""

from __future__ import annotations

from collections.abc import Mapping

from tidegate.core.ids import PipelineId
from tidegate.core.modes import FailoverStrategy
from tidegate.protocol.region import RegionState

_DEPLOYED = (
    RegionState.DEPLOYING,
    RegionState.RUNNING,
    RegionState.FAILING,
    RegionState.FINISHED,
)


def regions_to_reset(
    strategy: FailoverStrategy, failed: PipelineId, regions: Mapping[PipelineId, RegionState]
) -> frozenset[PipelineId]:
    """The regions that go back to the last checkpoint; those that wait to do so are left out.

    `full` takes finished regions along: the checkpoint may be older than their end, and it says
    which of their subtasks need not run again.
    """
    if strategy is FailoverStrategy.REGION:
        return frozenset({failed})
    return frozenset(pipeline for pipeline, state in regions.items() if state in _DEPLOYED)
