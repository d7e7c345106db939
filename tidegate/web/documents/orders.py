"""Orders and their outcomes, under Flink's names."""

from __future__ import annotations

from typing import Annotated, Literal

from tidegate.web.forms import ABSENT, Absent, Between, Form, Id, Pattern, camel, named

Format = Literal["CANONICAL", "NATIVE"]


class CheckpointOrder(Form, naming=camel):
    """Take a checkpoint."""

    checkpoint_type: Literal["CONFIGURED", "FULL", "INCREMENTAL"] | None = None
    trigger_id: Id | None = None


class SavepointOrder(Form):
    """Take a savepoint."""

    target_directory: str | None = None
    cancel_job: bool = False
    format_type: Format = named("formatType", default="CANONICAL")
    trigger_id: Id | None = named("triggerId", default=None)


class StopOrder(Form, naming=camel):
    """Stop with a savepoint."""

    target_directory: str | None = None
    drain: bool = False
    format_type: Format = "CANONICAL"
    trigger_id: Id | None = None


class DisposalOrder(Form):
    """Delete a savepoint."""

    savepoint_path: Annotated[str, Pattern(".+")]


class RescalingQuery(Form):
    """The new parallelism."""

    parallelism: Annotated[int, Between(1, 1 << 15)]


class CancelQuery(Form):
    """Flink has other modes, too."""

    mode: Literal["cancel"] = "cancel"


class OperationState(Form):
    """Whether an operation has ended."""

    id: Literal["IN_PROGRESS", "COMPLETED"]


class SnapshotProgress(Form):
    """The progress of a checkpoint."""

    checkpoint_id: int
    acknowledged: Annotated[int, "Subtasks that have written their part."]
    subtasks: Annotated[int, "Subtasks that take part."]


class FailureCause(Form):
    """Why it failed."""

    class_: str = named("class")
    stack_trace: str


class PlainOutcome(Form):
    """The outcome of an operation without a result."""

    failure_cause: FailureCause | Absent = ABSENT


class SavepointOutcome(PlainOutcome):
    """The outcome of a savepoint."""

    location: str | Absent = ABSENT


class CheckpointOutcome(Form):
    """The outcome of a checkpoint."""

    checkpoint_id: int | Absent | None = named("checkpointId", default=ABSENT)
    external_path: str | Absent | None = ABSENT
    failure_cause: FailureCause | Absent = named("failureCause", default=ABSENT)


class StartOutcome(PlainOutcome):
    """The job that was started."""

    jid: str | Absent = ABSENT
    url: Annotated[str | Absent | None, "Its dashboard, with a code for one login."] = ABSENT


class PlainStatus(Form):
    """The status of an operation."""

    status: OperationState
    progress: SnapshotProgress | Absent | None = ABSENT
    operation: PlainOutcome | Absent = ABSENT


class StartStatus(PlainStatus):
    """The status of a restart."""

    operation: StartOutcome | Absent = ABSENT


class SavepointStatus(PlainStatus):
    """The status of a savepoint."""

    operation: SavepointOutcome | Absent = ABSENT


class CheckpointTriggerStatus(Form):
    """The status of a requested checkpoint."""

    status: OperationState
    progress: SnapshotProgress | Absent | None = ABSENT
    operation: CheckpointOutcome | Absent = ABSENT
