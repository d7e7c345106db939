"""The failures of a job, under Flink's names."""

from __future__ import annotations

from typing import Annotated, Any

from tidegate.core.errors import TidegateError, UserFunctionError
from tidegate.driver.chronicle import FailureRecord
from tidegate.driver.job_handle import JobHandle
from tidegate.web.documents.common import milliseconds, slot_name, vertex_id
from tidegate.web.forms import Form, camel, named


class FailureFacts(Form):
    """Tidegate's own facts about a failure."""

    restarted: bool
    traceback: Annotated[str, "The user's frames only; for other errors, the message."]
    record: Annotated[str | None, "The record that was being processed, as text."]
    operator: str | None
    uid: str | None
    subtask: int | None
    vertices: Annotated[list[str], "The vertices of the failed part."]
    checkpoint_id: Annotated[int | None, "The checkpoint that was restored."]
    recovered: Annotated[int, "When the job ran again; -1: not yet, or never."]
    recovery_time: int


class FailureDocument(Form, naming=camel):
    """One failure."""

    exception_name: str
    stacktrace: str
    timestamp: int
    failure_labels: dict[str, str]
    task_name: str | None
    endpoint: str | None
    location: str | None
    task_manager_id: str | None
    concurrent_exceptions: list[dict[str, Any]]
    tidegate: FailureFacts


class ExceptionHistory(Form):
    """The last failures, newest first."""

    entries: list[FailureDocument]
    truncated: bool


class Exceptions(Form):
    """The failures of a job, newest first."""

    root_exception: str | None
    timestamp: int | None
    all_exceptions: list[dict[str, Any]]
    truncated: bool
    exception_history: ExceptionHistory = named("exceptionHistory")


def exceptions(job: JobHandle, limit: int) -> Exceptions:
    chronicle = job.chronicle
    shown = chronicle.failures[:limit]
    latest = chronicle.failures[0] if chronicle.failures else None
    truncated = chronicle.is_truncated or len(shown) < len(chronicle.failures)
    return Exceptions(
        root_exception=None if latest is None else _trace(latest.cause),
        timestamp=None if latest is None else milliseconds(latest.at),
        all_exceptions=[],
        truncated=truncated,
        exception_history=ExceptionHistory(
            entries=[_failure(job, record) for record in shown], truncated=truncated
        ),
    )


def _failure(job: JobHandle, record: FailureRecord) -> FailureDocument:
    slot = None if record.slot is None else slot_name(record.slot)
    return FailureDocument(
        exception_name=type(record.cause).__name__,
        stacktrace=_trace(record.cause),
        timestamp=milliseconds(record.at),
        failure_labels={},
        task_name=_task_name(job, record),
        endpoint=slot,
        location=slot,
        task_manager_id=slot,
        concurrent_exceptions=[],
        tidegate=_facts(job, record),
    )


def _facts(job: JobHandle, record: FailureRecord) -> FailureFacts:
    cause, at, recovered = record.cause, record.at, record.recovered_at
    is_users = isinstance(cause, UserFunctionError)
    operator, uid, _, shown, trace = cause.args if is_users else (None, None, None, None, None)
    return FailureFacts(
        restarted=not record.is_final,
        traceback=str(trace) if is_users else str(cause),
        record=shown,
        operator=operator,
        uid=uid,
        subtask=record.slot if is_users else None,
        vertices=[vertex_id(v) for v in job.graph.vertices if v.pipeline in record.pipelines],
        checkpoint_id=record.restored_from,
        recovered=milliseconds(recovered),
        recovery_time=milliseconds(None if recovered is None else recovered - at),
    )


def _trace(cause: TidegateError) -> str:
    return f"{type(cause).__name__}: {cause}"


def _task_name(job: JobHandle, record: FailureRecord) -> str | None:
    if isinstance(record.cause, UserFunctionError):
        return f"{record.cause.args[0]} {record.cause.args[2]}"
    names = [v.name for v in job.graph.vertices if v.pipeline in record.pipelines]
    return ", ".join(names) or None
