"""What orders and the answers about them look like, as JSON schemas."""

from __future__ import annotations

from tidegate.web.schema_forms import (
    BOOLEAN,
    ID,
    INTEGER,
    TEXT,
    Schema,
    choice,
    described,
    object_of,
    or_null,
    request_body,
)

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
