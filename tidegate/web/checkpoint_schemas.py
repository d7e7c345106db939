"""What answers about checkpoints look like, as JSON schemas."""

from __future__ import annotations

from tidegate.web.schema_forms import (
    BOOLEAN,
    INTEGER,
    NUMBER,
    TEXT,
    array_of,
    choice,
    fields,
    mapping_of,
    object_of,
    or_null,
)

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
