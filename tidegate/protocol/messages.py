"""Everything that driver and slots say to each other: the only vocabulary both sides share."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tidegate.checkpoint.ownership import Ownership
from tidegate.checkpoint.statistics import SubtaskStatistics
from tidegate.connectors.source import InputStatus
from tidegate.core.errors import TidegateError
from tidegate.core.ids import (
    Address,
    Attempt,
    CheckpointId,
    EdgeId,
    Level,
    PipelineId,
    SlotIndex,
    StepNumber,
    SubtaskId,
    SubtaskIndex,
    VertexId,
)
from tidegate.core.poison import DeadLetter, PoisonOrders
from tidegate.protocol.incarnation import Incarnation
from tidegate.protocol.packet import FailureMark, SlotOutOfReach
from tidegate.protocol.restore import SubtaskRestore
from tidegate.state.pointers import SubtaskSnapshot
from tidegate.state.snapshot.reader import CheckpointLocation
from tidegate.stream.elements import Barrier

# --- slot to driver -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Register:
    """The first message of a slot: who it is, where its step server listens, what it runs on."""

    incarnation: Incarnation
    address: Address
    versions: dict[str, str]
    process_id: int
    host: str = ""
    """The name of its machine."""


@dataclass(frozen=True, slots=True)
class Deployed:
    """All subtasks of the pipeline in this slot are open."""

    pipeline: PipelineId
    attempt: Attempt
    seeks: tuple[str, ...] = ()
    """In words, from where its sources resume."""


@dataclass(frozen=True, slots=True)
class StateRead:
    """The subtasks that are being opened in this slot have read so much more of a checkpoint."""

    pipeline: PipelineId
    attempt: Attempt
    size: int


@dataclass(frozen=True, slots=True)
class DeployFailed:
    """A subtask could not be opened."""

    pipeline: PipelineId
    attempt: Attempt
    error: TidegateError


@dataclass(frozen=True, slots=True)
class Undeployed:
    """The subtasks of the pipeline are closed: it was cancelled, has failed or is finished."""

    pipeline: PipelineId
    failure: TidegateError | None = None
    """What user code raised while it was closed."""


@dataclass(frozen=True, slots=True)
class Wake:
    """Something in an idle pipeline waits for a step: input, a timer or an aborted checkpoint."""

    pipeline: PipelineId


@dataclass(frozen=True, slots=True)
class ConsoleLines:
    """Lines for the standard output of the driver."""

    lines: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class FunctionLog:
    """Something that was logged in a slot."""

    logger: str
    level: int
    task: str
    """The subtask, like "Map (1/2)", or the thread."""
    text: str
    created: float


@dataclass(frozen=True, slots=True)
class UserCounts:
    """What the functions of a pipeline in one slot have counted since they were deployed."""

    pipeline: PipelineId
    attempt: Attempt
    metrics: dict[VertexId, dict[str, dict[str, float]]]
    """By vertex, operator and name."""
    accumulators: tuple[tuple[str, bytes], ...] = ()
    """By name, pickled; a name appears once for every operator that has it."""


@dataclass(frozen=True, slots=True)
class RecordsSkipped:
    """How many records each vertex skipped since the last such message, and some of them."""

    counts: dict[VertexId, int]
    letters: tuple[DeadLetter, ...]


class SampledRecord(NamedTuple):
    """A record as text, and its timestamp if it has one."""

    text: str
    timestamp: int | None


@dataclass(frozen=True, slots=True)
class Profile:
    """Where the threads of a process spent their time."""

    stacks: dict[str, int]
    """How often each was seen: functions from the outermost on, with ";" between."""
    sampler: str
    seconds: float
    note: str | None
    """What would have made it better."""


@dataclass(frozen=True, slots=True)
class Inspected:
    """What was found by an inspection: stacks by thread, a profile, or records."""

    number: int
    found: dict[str, str] | Profile | tuple[SampledRecord, ...]


@dataclass(frozen=True, slots=True)
class Collected:
    """Records for a collector in the driver, encoded like on a channel."""

    collector: str
    subtask: SubtaskIndex
    payload: bytes


@dataclass(frozen=True, slots=True)
class SlotHeartbeat:
    """The slot is alive, and asks for its lease to be renewed."""

    number: int = 0
    """From `SlotMachine.beat`."""
    memory: int | None = None
    """Bytes that the process has in memory; None where that is not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointAcknowledged:
    """A subtask has written its part of a checkpoint."""

    checkpoint_id: CheckpointId
    subtask: SubtaskId
    attempt: Attempt
    snapshot: SubtaskSnapshot
    is_finished: bool
    statistics: SubtaskStatistics


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointDeclined:
    """A subtask cannot take part in a checkpoint."""

    checkpoint_id: CheckpointId
    subtask: SubtaskId
    attempt: Attempt
    error: TidegateError
    is_skipped: bool = False
    """A newer barrier overtook this one's."""


@dataclass(frozen=True, slots=True)
class CheckpointNotified:
    """The subtasks of the pipeline in this slot know that a checkpoint is complete."""

    pipeline: PipelineId
    attempt: Attempt
    checkpoint_id: CheckpointId
    failure: TidegateError | None = None
    """What was to be done then could not be done."""


SlotMessage = (
    Register
    | StateRead
    | Deployed
    | DeployFailed
    | Undeployed
    | Wake
    | ConsoleLines
    | FunctionLog
    | UserCounts
    | RecordsSkipped
    | Inspected
    | Collected
    | SlotHeartbeat
    | CheckpointAcknowledged
    | CheckpointDeclined
    | CheckpointNotified
)

# --- driver to slot -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Refused:
    """The registration is not accepted; the slot exits."""

    reason: str


@dataclass(frozen=True, slots=True)
class Accepted:
    """The registration is accepted: the job, as packed by `tidegate.transport.shipping`."""

    package: bytes
    lease_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotSettings:
    """Where and how subtasks write their state."""

    directory: str | None
    """The URL of the job's directory; None: everything is sent to the driver."""
    ownership: Ownership | None = None
    """Held by the driver that sends this; whoever opens subtasks asks whether it still is."""
    inline_threshold: int
    """State of a subtask up to so many bytes is sent to the driver."""
    limit: int
    """Bytes of a subtask's state that the driver takes where there is no directory."""
    transfer_threads: int = 1
    """How many files of a database are copied at once."""
    is_regular: bool = True
    """Whether checkpoints are taken; otherwise at most savepoints are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreOrder:
    """The checkpoint to resume from, and what the subtasks of one slot take over from it."""

    checkpoint_id: CheckpointId
    location: CheckpointLocation | None
    """Where its files are; None: it is in the driver's memory and has none."""
    subtasks: dict[VertexId, SubtaskRestore]
    size: int = 0
    """Bytes of its files that the slot will read."""


@dataclass(frozen=True, slots=True)
class Deploy:
    """Open the subtasks of a pipeline under a new attempt; an older attempt is closed first."""

    pipeline: PipelineId
    attempt: Attempt
    snapshots: SnapshotSettings
    restore: RestoreOrder | None = None
    """What to resume from; None: from nothing."""
    poison: PoisonOrders | None = None
    """Which records to skip; None: poison records are not watched for."""


@dataclass(frozen=True, slots=True)
class Undeploy:
    """Close the subtasks of a pipeline."""

    pipeline: PipelineId


@dataclass(frozen=True, slots=True)
class CheckpointCompleted:
    """A checkpoint, and so each one before it, is durable. May be repeated."""

    pipeline: PipelineId
    attempt: Attempt
    checkpoint_id: CheckpointId


@dataclass(frozen=True, slots=True)
class CheckpointAborted:
    """A checkpoint will never complete."""

    pipeline: PipelineId
    attempt: Attempt
    checkpoint_id: CheckpointId


@dataclass(frozen=True, slots=True)
class DriverHeartbeat:
    """The driver is alive: renews the lease from the time of the heartbeat that it answers."""

    answers: int = 0


@dataclass(frozen=True, slots=True)
class DumpThreads:
    """Report the stacks of all threads."""


@dataclass(frozen=True, slots=True)
class TakeProfile:
    """Report where time goes for so long."""

    seconds: float


@dataclass(frozen=True, slots=True)
class SampleEdge:
    """Report the next records that go along an edge, or those that have when the time is over."""

    pipeline: PipelineId
    edge: EdgeId
    records: int
    seconds: float


Inspection = DumpThreads | TakeProfile | SampleEdge


@dataclass(frozen=True, slots=True)
class Inspect:
    """Look into the slot while it works; it answers with `Inspected` under the same number."""

    number: int
    what: Inspection


@dataclass(frozen=True, slots=True)
class Shutdown:
    """Close everything and exit."""


DriverMessage = (
    Refused
    | Accepted
    | Deploy
    | Undeploy
    | CheckpointCompleted
    | CheckpointAborted
    | DriverHeartbeat
    | Inspect
    | Shutdown
)

# --- inside a step ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitAssignment:
    """Splits that a source subtask should read from now on."""

    splits: tuple[Any, ...] = ()
    no_more: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRequest:
    """What stage 0 of a step asks of every slot; the same again when Spark retries it."""

    pipeline: PipelineId
    attempt: Attempt
    step: StepNumber
    slice_records: int
    slice_bytes: int
    barriers: tuple[Barrier, ...] = ()
    assignments: dict[tuple[VertexId, SubtaskIndex], SplitAssignment] = field(default_factory=dict)
    group_watermarks: dict[str, int] = field(default_factory=dict)
    """The lowest watermark of each group of aligned sources, over all pipelines."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitOrder:
    """Which unit a step task wants to have run; sources run by the request at level 0."""

    pipeline: PipelineId
    attempt: Attempt
    step: StepNumber
    level: Level
    request: StepRequest | None


@dataclass(frozen=True, slots=True)
class Attendance:
    """The driver begins an endless job that carries the steps of a pipeline."""

    pipeline: PipelineId
    epoch: int
    """Grows with every job of the pipeline: slots let in only the pumps of the latest."""
    slots: int
    levels: int


@dataclass(frozen=True, slots=True)
class SubtaskFailure:
    """A subtask ended its slice early."""

    vertex: VertexId
    subtask: SubtaskIndex
    error: TidegateError


@dataclass(frozen=True, slots=True)
class SourceReport:
    """How far a source subtask came in this step."""

    records: int
    status: InputStatus
    pending: int | None
    aligned: tuple[str, int] | None = None
    """Its group and its watermark, if its strategy aligns it and it has a say."""


class Traffic(NamedTuple):
    """What went along an edge."""

    records: int
    size: int
    """Bytes: encoded where they leave a slot, else as they are in memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotReport:
    """What one slot says of a finished step."""

    slot: SlotIndex
    failures: tuple[SubtaskFailure, ...] = ()
    marks: tuple[FailureMark, ...] = ()
    """Slots whose part of this step is missing somewhere upstream."""
    sources: dict[VertexId, SourceReport] = field(default_factory=dict)
    records_in: dict[VertexId, int] = field(default_factory=dict)
    records_out: dict[VertexId, int] = field(default_factory=dict)
    records_taken: int = 0
    """What its sinks have received."""
    bytes_in: dict[VertexId, int] = field(default_factory=dict)
    """Sizes as those of `Traffic`."""
    bytes_out: dict[VertexId, int] = field(default_factory=dict)
    finished: frozenset[VertexId] = frozenset()
    """Vertices whose subtask here has ended."""
    watermarks: dict[VertexId, int] = field(default_factory=dict)
    """How far event time has come for subtasks that have it."""
    idle_channels: dict[VertexId, int] = field(default_factory=dict)
    """How many channels of a subtask, or all of a source, are idle; where some are."""
    next_timer: float | None = None
    busy_seconds: float = 0.0
    """How long the slot worked for this step."""
    worked: dict[VertexId, float] = field(default_factory=dict)
    """Seconds that each subtask has worked since it was deployed."""
    sent: dict[EdgeId, Traffic] = field(default_factory=dict)
    """What its subtasks have sent along each edge since they were deployed."""
    room: int | None = None
    """How many records a source should read in the next step; None: a whole slice."""


StepOutcome = SlotReport | SlotOutOfReach
