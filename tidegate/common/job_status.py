"""`JobStatus`: where a job stands."""

from __future__ import annotations

from enum import Enum


class JobStatus(Enum):
    """Flink's states of a job.

    INITIALIZING → CREATED → RUNNING → FINISHED
                                │ ↘ CANCELLING → CANCELED
                                └─▶ FAILING → RESTARTING → CREATED
                                         └─▶ FAILED
    """

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

    def is_globally_terminal_state(self) -> bool:
        """Whether the job has ended and will never run again."""
        return self in (JobStatus.FAILED, JobStatus.CANCELED, JobStatus.FINISHED)

    def is_terminal_state(self) -> bool:
        """Whether the job has ended here; another driver may still take it up."""
        return self is JobStatus.SUSPENDED or self.is_globally_terminal_state()
