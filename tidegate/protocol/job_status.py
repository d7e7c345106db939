"""The status of a job, under Flink's names, derived from its regions.

CREATED ──▶ RUNNING ──▶ FINISHED
   │        ▲    │
   │        │    ├──▶ FAILING ──▶ FAILED
   │        │    ▼       │
   │        └─ RESTARTING ◀┘
   └─────────────┴───── any of these ──▶ CANCELLING ──▶ CANCELED
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum

from tidegate.protocol.region import RegionState


class JobStatus(Enum):
    """Flink's states of a job. SUSPENDED, RECONCILING and INITIALIZING do not occur here."""

    CREATED = 0
    RUNNING = 1
    FAILING = 2
    FAILED = 3
    CANCELLING = 4
    CANCELED = 5
    FINISHED = 6
    RESTARTING = 7
    SUSPENDED = 8
    RECONCILING = 9
    INITIALIZING = 10

    @property
    def is_terminal(self) -> bool:
        return self in (JobStatus.FAILED, JobStatus.CANCELED, JobStatus.FINISHED)

    def is_globally_terminal_state(self) -> bool:
        """Whether the job has ended and will never run again."""
        return self.is_terminal

    def is_terminal_state(self) -> bool:
        """Whether the job has ended here; another driver may still take it over."""
        return self is JobStatus.SUSPENDED or self.is_terminal


def status_of(regions: Iterable[RegionState]) -> JobStatus:
    """The job's status; when all regions have ended, the worst of theirs."""
    found = list(regions)  # not a set: hashing a state costs more than comparing it
    if all(state is RegionState.RUNNING for state in found):
        return JobStatus.RUNNING
    ended = all(state.is_terminal for state in found)
    if RegionState.FAILED in found:
        return JobStatus.FAILED if ended else JobStatus.FAILING
    if RegionState.CANCELLING in found or RegionState.CANCELED in found:
        return JobStatus.CANCELED if ended else JobStatus.CANCELLING
    if RegionState.FAILING in found:
        return JobStatus.FAILING
    if RegionState.RESTARTING in found:
        return JobStatus.RESTARTING
    if all(state is RegionState.CREATED for state in found):
        return JobStatus.CREATED
    return JobStatus.FINISHED if ended else JobStatus.RUNNING
