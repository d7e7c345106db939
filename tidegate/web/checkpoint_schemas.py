"""What answers about checkpoints look like, as JSON schemas."""

from __future__ import annotations

from tidegate.web.schema_forms import (
    BOOLEAN,
    INTEGER,
    NUMBER,
    TEXT,
    array_of,
    choice,
    mapping_of,
    object_of,
    or_null,
)

_QUANTILE = or_null(NUMBER)
_STATS = object_of(
    {
        **dict.fromkeys(("min", "max", "avg"), INTEGER),
        **dict.fromkeys(("p50", "p90", "p95", "p99", "p999"), _QUANTILE),
    }
)
_STATUS = choice(("IN_PROGRESS", "COMPLETED", "FAILED"))
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
            dict.fromkeys(("restored", "total", "in_progress", "completed", "failed"), INTEGER)
        ),
        "summary": mapping_of(_STATS),
        "latest": object_of(
            {
                **dict.fromkeys(("completed", "savepoint", "failed"), or_null(CHECKPOINT)),
                "restored": or_null(
                    object_of(
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
        "history": array_of(CHECKPOINT),
    }
)
CHECKPOINT_CONFIG = object_of(
    {
        "mode": choice(("exactly_once", "at_least_once")),
        **dict.fromkeys(("interval", "timeout", "min_pause", "max_concurrent"), INTEGER),
        "externalization": mapping_of(BOOLEAN),
        "state_backend": TEXT,
        "checkpoint_storage": TEXT,
        "unaligned_checkpoints": BOOLEAN,
        "tolerable_failed_checkpoints": INTEGER,
        "aligned_checkpoint_timeout": INTEGER,
        "checkpoints_after_tasks_finish": BOOLEAN,
        "state_changelog_enabled": BOOLEAN,
    }
)
CHECKPOINT_TASK = object_of(
    {**_TASK, "summary": mapping_of({}), "subtasks": array_of(mapping_of({}))}
)
