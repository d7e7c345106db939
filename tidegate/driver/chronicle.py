"""The history of a job: when it entered which state, and what failed.

Written by the job master's thread; what is returned never changes, so any thread may read it.
"""

from __future__ import annotations

from dataclasses import dataclass

from tidegate.core.errors import SlotLost, TidegateError, UserFunctionError
from tidegate.core.ids import PipelineId, SlotIndex
from tidegate.protocol.job_status import JobStatus

_MOST_FAILURES = 16
"""As many as Flink keeps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureRecord:
    """One failure of a part of the job."""

    at: float
    """Seconds since the epoch."""
    cause: TidegateError
    pipelines: tuple[PipelineId, ...]
    """Those that failed with it; none if it was the job as a whole."""
    is_final: bool
    """Whether the job failed for good; otherwise it was restarted."""

    @property
    def slot(self) -> SlotIndex | None:
        """Where it happened, if that is known."""
        if isinstance(self.cause, SlotLost):
            return SlotIndex(self.cause.args[0])
        if isinstance(self.cause, UserFunctionError):
            number = str(self.cause.args[2]).strip("()").partition("/")[0]
            return SlotIndex(int(number) - 1) if number.isdigit() else None
        return None


class Chronicle:
    """The past of one job, over all the masters that it may have."""

    def __init__(self, now: float) -> None:
        self.started_at = now
        self.ended_at: float | None = None
        self.restarts = 0
        self.failures: tuple[FailureRecord, ...] = ()
        """The last ones, newest first."""
        self.is_truncated = False
        """Whether there were more."""
        self._entered: dict[JobStatus, float] = {JobStatus.CREATED: now}
        self._status = JobStatus.CREATED

    def entered(self) -> dict[JobStatus, float]:
        """When the job came into a state the last time, for those it was in."""
        return self._entered.copy()

    def is_now(self, status: JobStatus, now: float) -> None:
        """Note the state of the job, whether it is a new one or not."""
        if status is self._status:
            return
        self._status = status
        self._entered[status] = now
        self.ended_at = now if status.is_terminal else None

    def restarted(
        self, now: float, cause: TidegateError, pipelines: tuple[PipelineId, ...]
    ) -> None:
        self.restarts += 1
        self._failed(FailureRecord(at=now, cause=cause, pipelines=pipelines, is_final=False))

    def failed(
        self, now: float, cause: TidegateError, pipelines: tuple[PipelineId, ...] = ()
    ) -> None:
        """The job as a whole fails."""
        self._failed(FailureRecord(at=now, cause=cause, pipelines=pipelines, is_final=True))

    def _failed(self, record: FailureRecord) -> None:
        self.is_truncated = self.is_truncated or len(self.failures) == _MOST_FAILURES
        self.failures = (record, *self.failures)[:_MOST_FAILURES]
