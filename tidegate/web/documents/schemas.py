"""What orders and answers look like, as JSON schemas."""

from __future__ import annotations

from tidegate.protocol.job_status import JobStatus
from tidegate.web.documents.jobs import EXECUTION_STATES
from tidegate.web.documents.schema_forms import (
    BOOLEAN,
    ID,
    INTEGER,
    NUMBER,
    TEXT,
    Schema,
    array_of,
    choice,
    described,
    fields,
    mapping_of,
    object_of,
    or_null,
    request_body,
)

STATE = choice(tuple(status.name for status in JobStatus))
ERRORS = object_of({"errors": array_of(TEXT)})
TRIGGERED = object_of({"request-id": ID})
EMPTY = object_of({})

OVERVIEW = object_of(
    {
        **fields(INTEGER, "taskmanagers", "slots-total", "slots-available"),
        **fields(INTEGER, "jobs-running", "jobs-finished", "jobs-cancelled", "jobs-failed"),
        **fields(TEXT, "flink-version", "flink-commit"),
    }
)
CONFIG = object_of(
    {
        **fields(INTEGER, "refresh-interval", "timezone-offset"),
        **fields(TEXT, "timezone-name", "flink-version", "flink-revision"),
        "features": mapping_of(BOOLEAN),
    }
)
JOBS = object_of({"jobs": array_of(object_of({"id": ID, "status": STATE}))})
_TIMES = fields(INTEGER, "start-time", "end-time", "duration")
JOBS_OVERVIEW = object_of(
    {
        "jobs": array_of(
            object_of(
                {
                    "jid": ID,
                    "name": TEXT,
                    "state": STATE,
                    **_TIMES,
                    "last-modification": INTEGER,
                    "tasks": mapping_of(INTEGER),
                }
            )
        )
    }
)
_IO_METRICS = object_of(
    {
        f"{way}-{what}{mark}": BOOLEAN if mark else INTEGER
        for way in ("read", "write")
        for what in ("bytes", "records")
        for mark in ("", "-complete")
    }
)
_EXECUTION = choice(EXECUTION_STATES)
_PLAN = object_of(
    {
        "jid": ID,
        "name": TEXT,
        "type": TEXT,
        "nodes": array_of(
            object_of(
                {
                    "id": ID,
                    "parallelism": INTEGER,
                    **fields(TEXT, "operator", "operator_strategy", "description"),
                    "optimizer_properties": mapping_of({}),
                    "inputs": array_of(
                        object_of(
                            {"num": INTEGER, "id": ID, "ship_strategy": TEXT, "exchange": TEXT}
                        )
                    ),
                }
            )
        ),
    }
)
PLAN = object_of({"plan": _PLAN})
_RESTORE = object_of(
    {
        "checkpoint-id": INTEGER,
        "bytes": described("In files that slots read; 0 where all state is small.", INTEGER),
        "restored-bytes": described("Those that they have read.", INTEGER),
        "complete": described("Whether all subtasks have their state.", BOOLEAN),
    }
)
JOB = object_of(
    {
        "jid": ID,
        "name": TEXT,
        "isStoppable": BOOLEAN,
        "state": STATE,
        "job-type": TEXT,
        **_TIMES,
        **fields(INTEGER, "maxParallelism", "now"),
        "timestamps": mapping_of(INTEGER),
        "vertices": array_of(
            object_of(
                {
                    "id": ID,
                    "name": TEXT,
                    **fields(INTEGER, "maxParallelism", "parallelism"),
                    "status": _EXECUTION,
                    **_TIMES,
                    "tasks": mapping_of(INTEGER),
                    "metrics": _IO_METRICS,
                    "tidegate": object_of(
                        {
                            "watermark": described(
                                "Of the slowest subtask; null where one has none yet.",
                                or_null(INTEGER),
                            ),
                            "idle-channels": described(
                                "Channels that hold no watermark back.", INTEGER
                            ),
                        }
                    ),
                }
            )
        ),
        "status-counts": mapping_of(INTEGER),
        "plan": _PLAN,
        "tidegate": object_of(
            {
                "started": described("All pipelines have completed a step.", BOOLEAN),
                "restart": described(
                    "Which restart the job waits for, after a failure; null: it waits for none.",
                    or_null(TEXT),
                ),
                "records-in": described("Read by sources since they were deployed.", INTEGER),
                "records-out": described("Taken by sinks since they were deployed.", INTEGER),
                "lag": described(
                    "Records that wait to be read; null where a source does not know.",
                    or_null(INTEGER),
                ),
                "records-to-repeat": described(
                    "Records that sources read again until they are where they had been.", INTEGER
                ),
                "restore": described(
                    "What the job resumed from last; null if it started fresh.",
                    or_null(_RESTORE),
                ),
                **fields(INTEGER, "steps", "step-duration", "restarts"),
            }
        ),
    }
)
JOB_CONFIG = object_of(
    {
        "jid": ID,
        "name": TEXT,
        "execution-config": object_of(
            {
                **fields(TEXT, "execution-mode", "restart-strategy"),
                "job-parallelism": INTEGER,
                "object-reuse-mode": BOOLEAN,
                "user-config": mapping_of(TEXT),
            }
        ),
    }
)
WATERMARKS = array_of(object_of(fields(TEXT, "id", "value")))
VERTEX = object_of(
    {
        "id": ID,
        "name": TEXT,
        **fields(INTEGER, "parallelism", "maxParallelism", "now"),
        "subtasks": array_of(
            object_of(
                {
                    "status": _EXECUTION,
                    **fields(INTEGER, "subtask", "attempt", "start_time"),
                    **fields(TEXT, "endpoint", "host", "taskmanager-id"),
                    **_TIMES,
                    "metrics": _IO_METRICS,
                }
            )
        ),
    }
)
METRICS = array_of(object_of({"id": TEXT, "value": TEXT}, optional=("value",)))
ACCUMULATORS = object_of(
    {
        "job-accumulators": array_of(mapping_of({})),
        "user-task-accumulators": array_of(object_of(fields(TEXT, "name", "type", "value"))),
        "serialized-user-task-accumulators": mapping_of({}),
    }
)
EXCEPTIONS = object_of(
    {
        "root-exception": or_null(TEXT),
        "timestamp": or_null(INTEGER),
        "all-exceptions": array_of(mapping_of({})),
        "truncated": BOOLEAN,
        "exceptionHistory": object_of(
            {
                "entries": array_of(
                    object_of(
                        {
                            **fields(TEXT, "exceptionName", "stacktrace"),
                            "timestamp": INTEGER,
                            "failureLabels": mapping_of(TEXT),
                            **fields(
                                or_null(TEXT), "taskName", "endpoint", "location", "taskManagerId"
                            ),
                            "concurrentExceptions": array_of(mapping_of({})),
                            "tidegate": object_of({"restarted": BOOLEAN}),
                        }
                    )
                ),
                "truncated": BOOLEAN,
            }
        ),
    }
)


# --- checkpoints --------------------------------------------------------------------------------

_STATS = object_of(
    {
        **fields(INTEGER, "min", "max", "avg"),
        **fields(or_null(NUMBER), "p50", "p90", "p95", "p99", "p999"),
    }
)
_STATUS = choice(("IN_PROGRESS", "COMPLETED", "FAILED"))
_WORK = {
    **fields(INTEGER, "latest_ack_timestamp", "checkpointed_size", "state_size"),
    **fields(INTEGER, "end_to_end_duration", "alignment_buffered"),
    **fields(INTEGER, "processed_data", "persisted_data"),
    **fields(INTEGER, "num_subtasks", "num_acknowledged_subtasks"),
}
_TASK = {"id": INTEGER, "status": _STATUS, **_WORK}
CHECKPOINT = object_of(
    {
        "@class": choice(("in_progress", "completed", "failed")),
        "id": INTEGER,
        "status": _STATUS,
        "is_savepoint": BOOLEAN,
        "trigger_timestamp": INTEGER,
        "checkpoint_type": choice(("CHECKPOINT", "SAVEPOINT", "SYNC_SAVEPOINT")),
        "tasks": mapping_of(object_of(_TASK)),
        **_WORK,
        "external_path": TEXT,
        "discarded": BOOLEAN,
        "failure_timestamp": INTEGER,
        "failure_message": or_null(TEXT),
    },
    optional=("external_path", "discarded", "failure_timestamp", "failure_message"),
)
CHECKPOINTS = object_of(
    {
        "counts": object_of(
            fields(INTEGER, "restored", "total", "in_progress", "completed", "failed")
        ),
        "summary": mapping_of(_STATS),
        "latest": object_of(
            {
                **fields(or_null(CHECKPOINT), "completed", "savepoint", "failed"),
                "restored": or_null(
                    object_of(
                        {
                            **fields(INTEGER, "id", "restore_timestamp"),
                            "is_savepoint": BOOLEAN,
                            "external_path": TEXT,
                        }
                    )
                ),
            }
        ),
        "history": array_of(CHECKPOINT),
    }
)
CHECKPOINT_CONFIG = object_of(
    {
        "mode": choice(("exactly_once", "at_least_once")),
        **fields(INTEGER, "interval", "timeout", "min_pause", "max_concurrent"),
        "externalization": mapping_of(BOOLEAN),
        **fields(TEXT, "state_backend", "checkpoint_storage"),
        **fields(INTEGER, "tolerable_failed_checkpoints", "aligned_checkpoint_timeout"),
        **fields(BOOLEAN, "unaligned_checkpoints", "checkpoints_after_tasks_finish"),
        "state_changelog_enabled": BOOLEAN,
    }
)
CHECKPOINT_TASK = object_of(
    {**_TASK, "summary": mapping_of({}), "subtasks": array_of(mapping_of({}))}
)


# --- orders -------------------------------------------------------------------------------------

_CAUSE = object_of({"class": TEXT, "stack-trace": TEXT})


def _operation(outcome: Schema) -> Schema:
    progress = object_of(
        {
            "checkpoint-id": INTEGER,
            "acknowledged": described("Subtasks that have written their part.", INTEGER),
            "subtasks": described("Those that take part.", INTEGER),
        }
    )
    return object_of(
        {
            "status": object_of({"id": choice(("IN_PROGRESS", "COMPLETED"))}),
            "operation": outcome,
            "progress": or_null(progress),
        },
        optional=("operation", "progress"),
    )


SAVEPOINT_STATUS = _operation(
    object_of({"location": TEXT, "failure-cause": _CAUSE}, optional=("location", "failure-cause"))
)
CHECKPOINT_TRIGGER_STATUS = _operation(
    object_of(
        {"checkpointId": INTEGER, "external-path": or_null(TEXT), "failureCause": _CAUSE},
        optional=("checkpointId", "external-path", "failureCause"),
    )
)
PLAIN_STATUS = _operation(object_of({"failure-cause": _CAUSE}, optional=("failure-cause",)))

_FORMATS = ("CANONICAL", "NATIVE")
CHECKPOINT_TRIGGER = request_body(
    {
        "checkpointType": choice(("CONFIGURED", "FULL", "INCREMENTAL")),
        "triggerId": dict(ID),
    }
)
SAVEPOINT_TRIGGER = request_body(
    {
        "target-directory": dict(TEXT),
        "cancel-job": dict(BOOLEAN),
        "formatType": choice(_FORMATS),
        "triggerId": dict(ID),
    }
)
STOP_TRIGGER = request_body(
    {
        "targetDirectory": dict(TEXT),
        "drain": dict(BOOLEAN),
        "formatType": choice(_FORMATS),
        "triggerId": dict(ID),
    }
)
DISPOSAL_TRIGGER = request_body(
    {"savepoint-path": {"type": "string", "minLength": 1}}, required=("savepoint-path",)
)
