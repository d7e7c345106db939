"""`JobExecutionResult`: the result of a finished job."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from tidegate.common.job_id import JobID
from tidegate.core.durations import as_milliseconds


@dataclass(frozen=True, slots=True)
class JobExecutionResult:
    """Returned by `execute()` when the job has finished."""

    job_id: JobID
    runtime: timedelta
    accumulators: dict[str, Any] = field(default_factory=dict)

    def get_job_id(self) -> JobID:
        """The id of the job."""
        return self.job_id

    def get_net_runtime(self) -> int:
        """Milliseconds from the start of the job to its end."""
        return as_milliseconds(self.runtime)

    def get_accumulator_result(self, accumulator_name: str) -> Any:
        """The value of the accumulator with this name."""
        return self.accumulators.get(accumulator_name)

    def get_all_accumulator_results(self) -> dict[str, Any]:
        """The values of all accumulators, by name."""
        return dict(self.accumulators)

    def __str__(self) -> str:
        return (
            "Program execution finished\n"
            f"Job with JobID {self.job_id} has finished.\n"
            f"Job Runtime: {self.get_net_runtime()} ms"
        )
