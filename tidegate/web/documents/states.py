"""Stored savepoints and checkpoints, and their state."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from tidegate.web.forms import Between, Form, Id, Pattern, named

Location = Annotated[str, Pattern(".+"), "A path or URL."]
Trust = Annotated[bool, "Load pickled objects of any class, which can run any code."]
SnapshotKind = Literal["savepoint", "checkpoint"]


class SavepointsQuery(Form):
    """Where to search: in a directory, in those of a job, or in all known ones."""

    directory: Location | None = None
    job: Id | None = None


class FoundSavepoint(Form):
    """A savepoint or checkpoint."""

    path: str
    kind: SnapshotKind
    id: int | None
    job: str | None
    jid: str | None
    completed: int
    size: int | None
    operators: int | None
    problem: Annotated[str | None, "Why it cannot be read."]


class FoundSavepoints(Form):
    """Savepoints and checkpoints, latest first."""

    directories: list[str]
    savepoints: list[FoundSavepoint]


class StateQuery(Form):
    """Which savepoint or checkpoint to read."""

    path: Location


class StateEntry(Form):
    """One state of an operator."""

    name: str
    kind: str
    type: str
    keyed: bool
    entries: Annotated[int | None, "Null if files of a database would have to be read."]
    size: int | None


class OperatorStates(Form):
    """One operator and its states."""

    uid: str | None
    id: str
    name: str
    parallelism: int
    max_parallelism: int
    size: int
    source_splits: int
    states: list[StateEntry]


class PositionEntry(Form):
    """The position of a source reader."""

    uid: str
    subtask: int
    split: str


class SavepointContents(Form):
    """The contents of a savepoint or checkpoint."""

    path: str
    kind: SnapshotKind
    id: int
    job: str
    jid: str
    completed: int
    operators: list[OperatorStates]
    source_positions: list[PositionEntry]


class EntriesQuery(StateQuery):
    """Which entries of a state to show."""

    operator: Annotated[str, Pattern(".+"), "Its uid or id."]
    state: Annotated[str, Pattern(".+"), "Its name."]
    search: Annotated[str | None, "Text in the key."] = None
    offset: Annotated[int, Between(0, 10**7)] = 0
    limit: Annotated[int, Between(1, 500)] = 50
    trust: Trust = False


class StateEntries(Form):
    """Some entries of a state, as Python shows them."""

    columns: list[str]
    entries: list[list[str]]
    offset: int
    more: bool


class DifferenceQuery(Form):
    """Which savepoints to compare."""

    before: Location
    after: Location
    trust: Trust = False


class StateDifference(Form):
    """How a state differs."""

    name: str
    added: int
    removed: int
    changed: int
    same: int
    type_before: str | None
    type_after: str | None
    examples: list[str]


class OperatorDifference(Form):
    """How an operator differs."""

    label: str
    states_added: list[str]
    states_removed: list[str]
    states: list[StateDifference]


class DifferenceDocument(Form):
    """The differences between two savepoints."""

    operators_added: list[str]
    operators_removed: list[str]
    operators: list[OperatorDifference]


class PlanOrder(Form):
    """Which program, of a job or a file, to check against which savepoint."""

    savepoint: Location
    jid: Id | None = None
    program: Location | None = None
    arguments: list[str] | None = None


class UpgradeDocument(Form):
    """What becomes of a savepoint's state in a program."""

    fits: bool
    bytes_not_restored: int
    obstacles: list[str]
    operators: list[dict[str, Any]]


class StartOrder(Form):
    """How to restart a job."""

    from_: str | None = named("from", default=None)
    parallelism: Annotated[int, Between(1, 1 << 15)] | None = None
    allow_non_restored: bool = False
