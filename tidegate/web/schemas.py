"""What requests and answers look like, as JSON schemas."""

from __future__ import annotations

from typing import Any

from tidegate.runtime.jobmanager.job_status import JobStatus
from tidegate.web.job_documents import EXECUTION_STATES

Schema = dict[str, Any]

INTEGER: Schema = {"type": "integer"}
NUMBER: Schema = {"type": "number"}
TEXT: Schema = {"type": "string"}
BOOLEAN: Schema = {"type": "boolean"}
ID: Schema = {"type": "string", "pattern": "^[0-9a-f]{32}$"}


def _object(properties: Schema, optional: tuple[str, ...] = ()) -> Schema:
    required = [name for name in properties if name not in optional]
    return {"type": "object", "properties": properties, "required": required}


def _array(items: Schema) -> Schema:
    return {"type": "array", "items": items}


def _mapping(values: Schema) -> Schema:
    return {"type": "object", "additionalProperties": values}


def _or_null(schema: Schema) -> Schema:
    return {"anyOf": [schema, {"type": "null"}]}


def _choice(values: tuple[str, ...]) -> Schema:
    return {"type": "string", "enum": list(values)}


def _body(properties: Schema, required: tuple[str, ...] = ()) -> Schema:
    """All fields but those required may be absent or null."""
    for name, schema in properties.items():
        if name not in required:
            schema["type"] = [schema["type"], "null"]
            if "enum" in schema:
                schema["enum"] = [*schema["enum"], None]
    return {
        "type": "object",
        "properties": properties,
        "required": list(required),
        "additionalProperties": False,
    }


STATE = _choice(tuple(status.name for status in JobStatus))
ERRORS = _object({"errors": _array(TEXT)})
TRIGGERED = _object({"request-id": ID})
EMPTY = _object({})

OVERVIEW = _object(
    {
        "taskmanagers": INTEGER,
        "slots-total": INTEGER,
        "slots-available": INTEGER,
        "jobs-running": INTEGER,
        "jobs-finished": INTEGER,
        "jobs-cancelled": INTEGER,
        "jobs-failed": INTEGER,
        "flink-version": TEXT,
        "flink-commit": TEXT,
    }
)
CONFIG = _object(
    {
        "refresh-interval": INTEGER,
        "timezone-name": TEXT,
        "timezone-offset": INTEGER,
        "flink-version": TEXT,
        "flink-revision": TEXT,
        "features": _mapping(BOOLEAN),
    }
)
JOBS = _object({"jobs": _array(_object({"id": ID, "status": STATE}))})
_TIMES = {"start-time": INTEGER, "end-time": INTEGER, "duration": INTEGER}
JOBS_OVERVIEW = _object(
    {
        "jobs": _array(
            _object(
                {
                    "jid": ID,
                    "name": TEXT,
                    "state": STATE,
                    **_TIMES,
                    "last-modification": INTEGER,
                    "tasks": _mapping(INTEGER),
                }
            )
        )
    }
)
_IO_METRICS = _object(
    {
        f"{way}-{what}{mark}": BOOLEAN if mark else INTEGER
        for way in ("read", "write")
        for what in ("bytes", "records")
        for mark in ("", "-complete")
    }
)
_EXECUTION = _choice(EXECUTION_STATES)
_PLAN = _object(
    {
        "jid": ID,
        "name": TEXT,
        "type": TEXT,
        "nodes": _array(
            _object(
                {
                    "id": ID,
                    "parallelism": INTEGER,
                    "operator": TEXT,
                    "operator_strategy": TEXT,
                    "description": TEXT,
                    "optimizer_properties": _mapping({}),
                    "inputs": _array(
                        _object({"num": INTEGER, "id": ID, "ship_strategy": TEXT, "exchange": TEXT})
                    ),
                }
            )
        ),
    }
)
PLAN = _object({"plan": _PLAN})
JOB = _object(
    {
        "jid": ID,
        "name": TEXT,
        "isStoppable": BOOLEAN,
        "state": STATE,
        "job-type": TEXT,
        **_TIMES,
        "maxParallelism": INTEGER,
        "now": INTEGER,
        "timestamps": _mapping(INTEGER),
        "vertices": _array(
            _object(
                {
                    "id": ID,
                    "name": TEXT,
                    "maxParallelism": INTEGER,
                    "parallelism": INTEGER,
                    "status": _EXECUTION,
                    **_TIMES,
                    "tasks": _mapping(INTEGER),
                    "metrics": _IO_METRICS,
                }
            )
        ),
        "status-counts": _mapping(INTEGER),
        "plan": _PLAN,
        "tidegate": _object(
            {
                "records-in": INTEGER,
                "records-out": INTEGER,
                "lag": _or_null(INTEGER),
                "steps": INTEGER,
                "step-duration": INTEGER,
                "restarts": INTEGER,
            }
        ),
    }
)
JOB_CONFIG = _object(
    {
        "jid": ID,
        "name": TEXT,
        "execution-config": _object(
            {
                "execution-mode": TEXT,
                "restart-strategy": TEXT,
                "job-parallelism": INTEGER,
                "object-reuse-mode": BOOLEAN,
                "user-config": _mapping(TEXT),
            }
        ),
    }
)
VERTEX = _object(
    {
        "id": ID,
        "name": TEXT,
        "parallelism": INTEGER,
        "maxParallelism": INTEGER,
        "now": INTEGER,
        "subtasks": _array(
            _object(
                {
                    "subtask": INTEGER,
                    "status": _EXECUTION,
                    "attempt": INTEGER,
                    "endpoint": TEXT,
                    "host": TEXT,
                    "taskmanager-id": TEXT,
                    "start_time": INTEGER,
                    **_TIMES,
                    "metrics": _IO_METRICS,
                }
            )
        ),
    }
)
EXCEPTIONS = _object(
    {
        "root-exception": _or_null(TEXT),
        "timestamp": _or_null(INTEGER),
        "all-exceptions": _array(_mapping({})),
        "truncated": BOOLEAN,
        "exceptionHistory": _object(
            {
                "entries": _array(
                    _object(
                        {
                            "exceptionName": TEXT,
                            "stacktrace": TEXT,
                            "timestamp": INTEGER,
                            "failureLabels": _mapping(TEXT),
                            "taskName": _or_null(TEXT),
                            "endpoint": _or_null(TEXT),
                            "location": _or_null(TEXT),
                            "taskManagerId": _or_null(TEXT),
                            "concurrentExceptions": _array(_mapping({})),
                            "tidegate": _object({"restarted": BOOLEAN}),
                        }
                    )
                ),
                "truncated": BOOLEAN,
            }
        ),
    }
)

# --- checkpoints --------------------------------------------------------------------------------

_QUANTILE = _or_null(NUMBER)
_STATS = _object(
    {
        **dict.fromkeys(("min", "max", "avg"), INTEGER),
        **dict.fromkeys(("p50", "p90", "p95", "p99", "p999"), _QUANTILE),
    }
)
_STATUS = _choice(("IN_PROGRESS", "COMPLETED", "FAILED"))
_WORK = dict.fromkeys(
    (
        "latest_ack_timestamp",
        "checkpointed_size",
        "state_size",
        "end_to_end_duration",
        "alignment_buffered",
        "processed_data",
        "persisted_data",
        "num_subtasks",
        "num_acknowledged_subtasks",
    ),
    INTEGER,
)
_TASK = {"id": INTEGER, "status": _STATUS, **_WORK}
CHECKPOINT = _object(
    {
        "@class": _choice(("in_progress", "completed", "failed")),
        "id": INTEGER,
        "status": _STATUS,
        "is_savepoint": BOOLEAN,
        "trigger_timestamp": INTEGER,
        "checkpoint_type": _choice(("CHECKPOINT", "SAVEPOINT", "SYNC_SAVEPOINT")),
        "tasks": _mapping(_object(_TASK)),
        **_WORK,
        "external_path": TEXT,
        "discarded": BOOLEAN,
        "failure_timestamp": INTEGER,
        "failure_message": _or_null(TEXT),
    },
    optional=("external_path", "discarded", "failure_timestamp", "failure_message"),
)
CHECKPOINTS = _object(
    {
        "counts": _object(
            dict.fromkeys(("restored", "total", "in_progress", "completed", "failed"), INTEGER)
        ),
        "summary": _mapping(_STATS),
        "latest": _object(
            {
                **dict.fromkeys(("completed", "savepoint", "failed"), _or_null(CHECKPOINT)),
                "restored": _or_null(
                    _object(
                        {
                            "id": INTEGER,
                            "restore_timestamp": INTEGER,
                            "is_savepoint": BOOLEAN,
                            "external_path": TEXT,
                        }
                    )
                ),
            }
        ),
        "history": _array(CHECKPOINT),
    }
)
CHECKPOINT_CONFIG = _object(
    {
        "mode": _choice(("exactly_once", "at_least_once")),
        **dict.fromkeys(("interval", "timeout", "min_pause", "max_concurrent"), INTEGER),
        "externalization": _mapping(BOOLEAN),
        "state_backend": TEXT,
        "checkpoint_storage": TEXT,
        "unaligned_checkpoints": BOOLEAN,
        "tolerable_failed_checkpoints": INTEGER,
        "aligned_checkpoint_timeout": INTEGER,
        "checkpoints_after_tasks_finish": BOOLEAN,
        "state_changelog_enabled": BOOLEAN,
    }
)
CHECKPOINT_TASK = _object({**_TASK, "summary": _mapping({}), "subtasks": _array(_mapping({}))})

# --- operations ---------------------------------------------------------------------------------

_CAUSE = _object({"class": TEXT, "stack-trace": TEXT})


def _operation(outcome: Schema) -> Schema:
    progress = _object({"checkpoint-id": INTEGER, "acknowledged": INTEGER, "subtasks": INTEGER})
    return _object(
        {
            "status": _object({"id": _choice(("IN_PROGRESS", "COMPLETED"))}),
            "operation": outcome,
            "progress": _or_null(progress),
        },
        optional=("operation", "progress"),
    )


SAVEPOINT_STATUS = _operation(
    _object({"location": TEXT, "failure-cause": _CAUSE}, optional=("location", "failure-cause"))
)
CHECKPOINT_TRIGGER_STATUS = _operation(
    _object(
        {"checkpointId": INTEGER, "external-path": _or_null(TEXT), "failureCause": _CAUSE},
        optional=("checkpointId", "external-path", "failureCause"),
    )
)
PLAIN_STATUS = _operation(_object({"failure-cause": _CAUSE}, optional=("failure-cause",)))

_FORMATS = ("CANONICAL", "NATIVE")
CHECKPOINT_TRIGGER = _body(
    {
        "checkpointType": _choice(("CONFIGURED", "FULL", "INCREMENTAL")),
        "triggerId": dict(ID),
    }
)
SAVEPOINT_TRIGGER = _body(
    {
        "target-directory": dict(TEXT),
        "cancel-job": dict(BOOLEAN),
        "formatType": _choice(_FORMATS),
        "triggerId": dict(ID),
    }
)
STOP_TRIGGER = _body(
    {
        "targetDirectory": dict(TEXT),
        "drain": dict(BOOLEAN),
        "formatType": _choice(_FORMATS),
        "triggerId": dict(ID),
    }
)
DISPOSAL_TRIGGER = _body(
    {"savepoint-path": {"type": "string", "minLength": 1}}, required=("savepoint-path",)
)
