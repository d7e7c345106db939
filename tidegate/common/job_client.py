"""`JobClient`: a running job, as the program that started it sees it."""

from __future__ import annotations

import time
from contextlib import suppress
from datetime import timedelta
from typing import Any

from tidegate.common.completable_future import CompletableFuture
from tidegate.common.job_execution_result import JobExecutionResult
from tidegate.common.job_id import JobID
from tidegate.core.errors import TidegateError
from tidegate.core.modes import SavepointFormat
from tidegate.driver.job_handle import JobHandle
from tidegate.driver.progress import Progress
from tidegate.protocol.job_status import JobStatus


class JobClient:
    """Queries, awaits and cancels a job."""

    def __init__(self, job: JobHandle) -> None:
        self._job = job
        self._started = time.monotonic()
        self._result: CompletableFuture[JobExecutionResult] | None = None

    def get_job_id(self) -> JobID:
        """The id of the job."""
        return JobID(str(self._job.job_id))

    def get_job_status(self) -> CompletableFuture[JobStatus]:
        """The current state of the job."""
        return CompletableFuture.completed(self._job.status())

    def get_progress(self) -> Progress:
        """Records in and out, lag, steps: what the live line shows."""
        return self._job.progress()

    def cancel(self) -> CompletableFuture[None]:
        """Cancel the job; the future is done when nothing of it runs any more."""
        return CompletableFuture.of_call(self.cancel_and_wait, "tidegate-cancel")

    def cancel_and_wait(self) -> None:
        """Cancel the job if it still runs, and wait until nothing of it does."""
        self._job.cancel()
        with suppress(TidegateError):
            self._job.result()

    def terminate(self) -> None:
        """End the job after an interrupt, as `tidegate.on-terminate` says, and wait for its end."""
        self._job.terminate()

    def get_job_execution_result(self) -> CompletableFuture[JobExecutionResult]:
        """Completes when the job has finished or failed."""
        if self._result is None:
            self._result = CompletableFuture.of_call(self.wait, "tidegate-result")
        return self._result

    def wait(self, timeout: float | None = None) -> JobExecutionResult:
        """Wait for the job to finish, at most this many seconds; raises its failure."""
        self._job.result(timeout)
        runtime = timedelta(seconds=time.monotonic() - self._started)
        return JobExecutionResult(self.get_job_id(), runtime, self._job.accumulators())

    def get_accumulators(self) -> CompletableFuture[dict[str, Any]]:
        """The current values of accumulators by name, merged over all subtasks."""
        return CompletableFuture.completed(self._job.accumulators())

    def trigger_checkpoint(self) -> CompletableFuture[str]:
        """Take a checkpoint now; returns its path."""
        return CompletableFuture.of_call(self._job.take_checkpoint().result, "tidegate-checkpoint")

    def trigger_savepoint(
        self,
        savepoint_directory: str | None = None,
        format: SavepointFormat = SavepointFormat.CANONICAL,
    ) -> CompletableFuture[str]:
        """Take a savepoint while the job continues; returns its path."""
        answer = self._job.take_savepoint(savepoint_directory, format)
        return CompletableFuture.of_call(answer.result, "tidegate-savepoint")

    def cancel_with_savepoint(
        self,
        savepoint_directory: str | None = None,
        format: SavepointFormat = SavepointFormat.CANONICAL,
    ) -> CompletableFuture[str]:
        """Take a savepoint, then cancel the job; returns the path of the savepoint."""
        answer = self._job.take_savepoint(savepoint_directory, format, cancel=True)
        return CompletableFuture.of_call(answer.result, "tidegate-savepoint")

    def stop_with_savepoint(
        self,
        advance_to_end_of_event_time: bool = False,
        savepoint_directory: str | None = None,
        format: SavepointFormat = SavepointFormat.CANONICAL,
    ) -> CompletableFuture[str]:
        """Stop the job with a savepoint after which nothing is emitted; returns its path.

        Advancing to the end drains the job: inputs end, and operators emit what they hold back.
        """
        drain = advance_to_end_of_event_time
        answer = self._job.stop(savepoint_directory, format, drain=drain)
        return CompletableFuture.of_call(answer.result, "tidegate-savepoint")

    def rescale(self, parallelism: int) -> CompletableFuture[str]:
        """Change the parallelism: take a checkpoint and resume from it. Returns its path."""
        answer = self._job.rescale(parallelism)
        return CompletableFuture.of_call(answer.result, "tidegate-rescale")
