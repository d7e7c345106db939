"""Logs every state change of a subtask, in Flink's words."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from enum import Enum, auto

from tidegate.core.errors import TidegateError, UserFunctionError
from tidegate.core.ids import PipelineId, SlotIndex
from tidegate.driver.chronicle import FailureRecord
from tidegate.graph.job_graph import Vertex
from tidegate.protocol.region import Region, RegionState

_log = logging.getLogger(__name__)


class TaskState(Enum):
    """The states of a subtask, under Flink's names."""

    CREATED = auto()
    DEPLOYING = auto()
    RUNNING = auto()
    FINISHED = auto()
    CANCELING = auto()
    CANCELED = auto()
    FAILED = auto()


_OF_REGION = {
    RegionState.CREATED: TaskState.CREATED,
    RegionState.DEPLOYING: TaskState.DEPLOYING,
    RegionState.RUNNING: TaskState.RUNNING,
    RegionState.FAILING: TaskState.FAILED,
    RegionState.RESTARTING: TaskState.CREATED,
    RegionState.CANCELLING: TaskState.CANCELING,
    RegionState.FINISHED: TaskState.FINISHED,
    RegionState.CANCELED: TaskState.CANCELED,
    RegionState.FAILED: TaskState.FAILED,
}
_AT_WORK = (TaskState.DEPLOYING, TaskState.RUNNING)


class TaskLog:
    """Logs how the states of subtasks have changed since the last call."""

    def __init__(self, vertices: Iterable[Vertex]) -> None:
        self._vertices = tuple(vertices)
        self._known: dict[PipelineId, RegionState] = {}
        self._states: dict[PipelineId, TaskState] = {}

    def look(self, regions: Iterable[Region], failures: tuple[FailureRecord, ...]) -> None:
        """Compare with the current regions; `failures` are newest first."""
        for region in regions:
            before = self._known.get(region.pipeline, RegionState.CREATED)
            if region.state is before:
                continue
            self._known[region.pipeline] = region.state
            self._changed(region, failures[0] if failures else None)

    def _changed(self, region: Region, failure: FailureRecord | None) -> None:
        pipeline, new = region.pipeline, _OF_REGION[region.state]
        old = self._states.get(pipeline, TaskState.CREATED)
        self._states[pipeline] = new
        is_over = new in (TaskState.CREATED, TaskState.FAILED) and old in _AT_WORK
        for vertex in self._vertices:
            for subtask in range(vertex.parallelism if vertex.pipeline == pipeline else 0):
                name = f"{vertex.name} ({subtask + 1}/{vertex.parallelism})"
                if is_over and failure is not None and _failed(failure, vertex, subtask):
                    cause = _cause(failure.cause)
                    said = "%s switched from %s to FAILED with failure cause: %s"
                    _log.warning(said, name, old.name, cause)
                elif is_over:
                    _log.info("%s switched from %s to CANCELED", name, old.name)
                elif new not in (old, TaskState.CREATED):
                    _log.info("%s switched from %s to %s", name, old.name, new.name)


def _failed(failure: FailureRecord, vertex: Vertex, subtask: int) -> bool:
    """Whether this subtask failed; without further information, all of the pipeline count."""
    if vertex.pipeline not in failure.pipelines:
        return False
    slot, cause = failure.slot, failure.cause
    if slot is not None and slot != SlotIndex(subtask):
        return False
    if isinstance(cause, UserFunctionError):
        return cause.args[0] in {operator.name for operator in vertex.chain}
    return True


def _cause(failure: TidegateError) -> str:
    return failure.cause if isinstance(failure, UserFunctionError) else str(failure)
