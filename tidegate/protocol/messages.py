"""The messages between driver and slots."""

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
from tidegate.protocol.pickles import quickly_pickled
from tidegate.protocol.restore import SubtaskRestore
from tidegate.state.pointers import SubtaskSnapshot
from tidegate.state.snapshot.reader import CheckpointLocation
from tidegate.stream.elements import Barrier

# --- slot to driver -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Register:
    """A slot's first message: its identity, the address of its step server, its environment."""

    incarnation: Incarnation
    address: Address
    versions: dict[str, str]
    process_id: int
    host: str = ""
    """Its host name."""


@dataclass(frozen=True, slots=True)
class Deployed:
    """All subtasks of the pipeline in this slot are open."""

    pipeline: PipelineId
    attempt: Attempt
    seeks: tuple[str, ...] = ()
    """Where its sources resume, as text."""


@dataclass(frozen=True, slots=True)
class StateRead:
    """The opening subtasks of this slot have read this many more bytes of a checkpoint."""

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
    """The subtasks of the pipeline are closed: cancelled, failed or finished."""

    pipeline: PipelineId
    failure: TidegateError | None = None
    """What user code raised in `close()`."""


@dataclass(frozen=True, slots=True)
class Wake:
    """Input, a timer or an aborted checkpoint in an idle pipeline needs a step."""

    pipeline: PipelineId


@dataclass(frozen=True, slots=True)
class ConsoleLines:
    """Lines for the standard output of the driver."""

    lines: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class FunctionLog:
    """A log record of a slot."""

    logger: str
    level: int
    task: str
    """The subtask, like "Map (1/2)", or the thread."""
    text: str
    created: float


@dataclass(frozen=True, slots=True)
class UserCounts:
    """Metrics and accumulators of a pipeline's functions in one slot, since deployment."""

    pipeline: PipelineId
    attempt: Attempt
    metrics: dict[VertexId, dict[str, dict[str, float]]]
    """By vertex, operator and name."""
    accumulators: tuple[tuple[str, bytes], ...] = ()
    """By name, pickled; one entry per operator that has it."""


@dataclass(frozen=True, slots=True)
class RecordsSkipped:
    """How many records each vertex skipped since the previous message, with examples."""

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
    """Sample counts by stack: function names, outermost first, separated by ";"."""
    sampler: str
    seconds: float
    note: str | None
    """How to get a better profile."""


@dataclass(frozen=True, slots=True)
class Inspected:
    """The result of an inspection: stacks by thread, a profile, or records."""

    number: int
    found: dict[str, str] | Profile | tuple[SampledRecord, ...]


@dataclass(frozen=True, slots=True)
class Collected:
    """Records for a collector in the driver, encoded as on a channel."""

    collector: str
    subtask: SubtaskIndex
    payload: bytes


@dataclass(frozen=True, slots=True)
class SlotHeartbeat:
    """The slot is alive and asks to renew its lease."""

    number: int = 0
    """From `SlotMachine.beat`."""
    memory: int | None = None
    """Resident bytes of the process; None if unknown."""


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
    """A newer barrier overtook the barrier of this checkpoint."""


@dataclass(frozen=True, slots=True)
class CheckpointNotified:
    """The subtasks of the pipeline in this slot were notified of a complete checkpoint."""

    pipeline: PipelineId
    attempt: Attempt
    checkpoint_id: CheckpointId
    failure: TidegateError | None = None
    """Why the notification failed."""


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
    """The registration is rejected; the slot exits."""

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
    """Held by the sending driver; checked again before subtasks open or take something over."""
    inline_threshold: int
    """State of a subtask up to this many bytes is sent to the driver."""
    limit: int
    """The most bytes of state per subtask that the driver accepts without a directory."""
    transfer_threads: int = 1
    """How many files of a database are copied concurrently."""
    is_regular: bool = True
    """Whether checkpoints are enabled; otherwise only savepoints are taken."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreOrder:
    """The checkpoint to resume from, and what the subtasks of one slot take over from it."""

    checkpoint_id: CheckpointId
    location: CheckpointLocation | None
    """Where its files are; None: it is in the driver's memory and has no files."""
    subtasks: dict[VertexId, SubtaskRestore]
    size: int = 0
    """Bytes of files that the slot will read."""


@dataclass(frozen=True, slots=True)
class Deploy:
    """Open the subtasks of a pipeline under a new attempt, after closing an older one."""

    pipeline: PipelineId
    attempt: Attempt
    snapshots: SnapshotSettings
    restore: RestoreOrder | None = None
    """What to resume from; None: start fresh."""
    poison: PoisonOrders | None = None
    """Which records to skip; None: poison records are not tracked."""


@dataclass(frozen=True, slots=True)
class Undeploy:
    """Close the subtasks of a pipeline."""

    pipeline: PipelineId


@dataclass(frozen=True, slots=True)
class CheckpointCompleted:
    """A checkpoint, and every earlier one, is durable. May be repeated."""

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
    """The driver is alive: renews the lease from when the answered heartbeat was sent."""

    answers: int = 0


@dataclass(frozen=True, slots=True)
class DumpThreads:
    """Report the stacks of all threads."""


@dataclass(frozen=True, slots=True)
class TakeProfile:
    """Profile the process for this long."""

    seconds: float


@dataclass(frozen=True, slots=True)
class SampleEdge:
    """Report the next records on an edge, or fewer when the time is up."""

    pipeline: PipelineId
    edge: EdgeId
    records: int
    seconds: float


Inspection = DumpThreads | TakeProfile | SampleEdge


@dataclass(frozen=True, slots=True)
class Inspect:
    """Inspect the running slot; it answers with `Inspected` under the same number."""

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
    """Splits for a source subtask to read."""

    splits: tuple[Any, ...] = ()
    no_more: bool = False


@quickly_pickled
@dataclass(frozen=True, slots=True, kw_only=True)
class StepRequest:
    """What stage 0 of a step requests from every slot; identical when Spark retries it."""

    pipeline: PipelineId
    attempt: Attempt
    step: StepNumber
    slice_records: int
    slice_bytes: int
    barriers: tuple[Barrier, ...] = ()
    assignments: dict[tuple[VertexId, SubtaskIndex], SplitAssignment] = field(default_factory=dict)
    group_watermarks: dict[str, int] = field(default_factory=dict)
    """The lowest watermark of each alignment group, over all pipelines."""


@quickly_pickled
@dataclass(frozen=True, slots=True, kw_only=True)
class UnitOrder:
    """Which unit a step task wants to run; level 0 carries the request for the sources."""

    pipeline: PipelineId
    attempt: Attempt
    step: StepNumber
    level: Level
    request: StepRequest | None


@dataclass(frozen=True, slots=True)
class Attendance:
    """The driver starts an endless job that carries the steps of a pipeline."""

    pipeline: PipelineId
    epoch: int
    """Grows with every such job; slots admit only the pumps of the latest."""
    slots: int
    levels: int


@dataclass(frozen=True, slots=True)
class SubtaskFailure:
    """A subtask failed and ended its slice early."""

    vertex: VertexId
    subtask: SubtaskIndex
    error: TidegateError


@quickly_pickled
@dataclass(frozen=True, slots=True)
class SourceReport:
    """The progress of a source subtask in this step."""

    records: int
    status: InputStatus
    pending: int | None
    aligned: tuple[str, int] | None = None
    """Its alignment group and watermark, if it takes part in one and is not idle."""


class Traffic(NamedTuple):
    """What was sent along an edge."""

    records: int
    size: int
    """Encoded bytes between slots, bytes in memory within a slot."""


@quickly_pickled
@dataclass(frozen=True, slots=True, kw_only=True)
class SlotReport:
    """A slot's report on a finished step."""

    slot: SlotIndex
    failures: tuple[SubtaskFailure, ...] = ()
    marks: tuple[FailureMark, ...] = ()
    """Slots upstream whose part of this step is missing."""
    sources: dict[VertexId, SourceReport] = field(default_factory=dict)
    records_in: dict[VertexId, int] = field(default_factory=dict)
    records_out: dict[VertexId, int] = field(default_factory=dict)
    records_taken: int = 0
    """What its sinks have received."""
    bytes_in: dict[VertexId, int] = field(default_factory=dict)
    """Sizes as those of `Traffic`."""
    bytes_out: dict[VertexId, int] = field(default_factory=dict)
    finished: frozenset[VertexId] = frozenset()
    """Vertices whose subtask in this slot has ended."""
    watermarks: dict[VertexId, int] = field(default_factory=dict)
    """The event time of each subtask that has one."""
    idle_channels: dict[VertexId, int] = field(default_factory=dict)
    """Idle channels per subtask, where there are any; all of them for an idle source."""
    timer_in: float | None = None
    """Seconds until its next timer is due; not a time, because the clocks of hosts differ."""
    busy_seconds: float = 0.0
    """How long the slot worked on this step."""
    worked: dict[VertexId, float] = field(default_factory=dict)
    """Seconds that each subtask has worked since it was deployed."""
    sent: dict[EdgeId, Traffic] = field(default_factory=dict)
    """What its subtasks have sent along each edge since they were deployed."""
    room: int | None = None
    """How many records a source should read in the next step; None: a whole slice."""


StepOutcome = SlotReport | SlotOutOfReach
