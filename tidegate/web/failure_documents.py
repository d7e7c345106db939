"""The failures of a job as a JSON document, in Flink's words."""

from __future__ import annotations

from typing import Any

from tidegate.core.errors import TidegateError, UserFunctionError
from tidegate.driver.chronicle import FailureRecord
from tidegate.driver.job_handle import JobHandle
from tidegate.web.job_documents import milliseconds


def exceptions(job: JobHandle, limit: int) -> dict[str, Any]:
    chronicle = job.chronicle
    shown = chronicle.failures[:limit]
    latest = chronicle.failures[0] if chronicle.failures else None
    truncated = chronicle.is_truncated or len(shown) < len(chronicle.failures)
    return {
        "root-exception": None if latest is None else _trace(latest.cause),
        "timestamp": None if latest is None else milliseconds(latest.at),
        "all-exceptions": [],
        "truncated": truncated,
        "exceptionHistory": {
            "entries": [_failure(job, record) for record in shown],
            "truncated": truncated,
        },
    }


def _failure(job: JobHandle, record: FailureRecord) -> dict[str, Any]:
    slot = None if record.slot is None else f"slot-{record.slot}"
    return {
        "exceptionName": type(record.cause).__name__,
        "stacktrace": _trace(record.cause),
        "timestamp": milliseconds(record.at),
        "failureLabels": {},
        "taskName": _task_name(job, record),
        "endpoint": slot,
        "location": slot,
        "taskManagerId": slot,
        "concurrentExceptions": [],
        "tidegate": {"restarted": not record.is_final},
    }


def _trace(cause: TidegateError) -> str:
    return f"{type(cause).__name__}: {cause}"


def _task_name(job: JobHandle, record: FailureRecord) -> str | None:
    if isinstance(record.cause, UserFunctionError):
        return f"{record.cause.args[0]} {record.cause.args[2]}"
    names = [v.name for v in job.graph.vertices if v.pipeline in record.pipelines]
    return ", ".join(names) or None
