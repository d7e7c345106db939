"""The contract between an operator and its subtask."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from tidegate.connectors.guarantee import Delivery
from tidegate.core.clock import Clock, SystemClock
from tidegate.core.ids import Attempt, CheckpointId, OperatorId, SubtaskIndex
from tidegate.core.modes import RuntimeExecutionMode
from tidegate.core.permit import Permit
from tidegate.core.poison import DeadLetter, PoisonOrders
from tidegate.operators.accumulators import FunctionAccumulator
from tidegate.operators.metrics import MetricGroup
from tidegate.state.backend import KeyedStateImage
from tidegate.state.keys.key_groups import KeyGroupRange
from tidegate.state.operator_state import OperatorStateStore
from tidegate.stream.batch import Batch
from tidegate.stream.elements import NO_WATERMARK, Barrier, Watermark, WatermarkStatus


class Output(Protocol):
    """Where an operator emits: the next operators of its chain, and channels to other vertices."""

    def emit(self, batch: Batch) -> None: ...

    def emit_side(self, tag: str, batch: Batch) -> None: ...

    def emit_watermark(self, watermark: Watermark) -> None: ...

    def emit_watermark_status(self, status: WatermarkStatus) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorContext:
    """What an operator receives when it is opened: its identity and resources."""

    name: str
    operator_id: OperatorId
    uid: str | None = None
    subtask: SubtaskIndex
    parallelism: int
    max_parallelism: int
    key_groups: KeyGroupRange
    """The key groups of this subtask; all of them for an operator without keys."""
    attempt: Attempt = Attempt(1)
    job_name: str = ""
    job_id: str = ""
    """Stays the same when the job restarts."""
    is_checkpointed: bool = False
    """Whether checkpoints are enabled; otherwise, sinks commit at the end of their input."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """The configuration of the job, including the user's job parameters."""
    clock: Clock = field(default_factory=SystemClock)
    console: Callable[[str], None] = print
    """Prints a line on the driver's standard output."""
    deliver: Callable[[str, Batch], None] | None = None
    """Sends a batch to the collector with this name in the driver."""
    operator_state: OperatorStateStore = field(default_factory=OperatorStateStore)
    """State of the operator as a whole, already restored. The subtask freezes it at a barrier,
    right after `Operator.snapshot`."""
    watermark: int = NO_WATERMARK
    """The event time of the restored checkpoint: it never decreases."""
    emitted_watermark: int = NO_WATERMARK
    """The last watermark that the operator had emitted then; usually the same."""
    has_ended: bool = False
    """Whether the subtask had ended in the restored checkpoint: no records follow, but what it
    prepared is committed, and later checkpoints include its state."""
    directory: Path | None = None
    """For files that need not outlive the attempt; None: a backend creates its own."""
    owned_directory: str | None = None
    """The URL of a directory for files of this operator that its state references; it is deleted
    with the job's last checkpoint. None: checkpoints end with the driver."""
    origin_directory: str | None = None
    """That of another job, or its copy in a savepoint, if the job is restored from there."""
    metrics: MetricGroup = field(default_factory=MetricGroup)
    """The metrics of the operator's function."""
    accumulators: dict[str, FunctionAccumulator] = field(default_factory=dict)
    """The accumulators of the operator's function, by name."""
    poison: PoisonOrders | None = None
    """Which records to skip; None: poison records are not tracked."""
    skip: Callable[[DeadLetter], None] = lambda letter: None
    """Called for every skipped record."""
    permit: Permit = Permit()
    """Checked right before every external commit, abort, fencing or deletion."""
    wake: Callable[[], None] = lambda: None
    """To be called, on any thread, when something else than a call has changed `next_timer`."""

    @property
    def reuses_objects(self) -> bool:
        """Whether functions share objects, and promise not to change them."""
        return bool(self.settings.get("pipeline.object-reuse", False))

    @property
    def is_batch(self) -> bool:
        """Whether only final results count: no watermark arrives before the end of the input."""
        return self.settings.get("execution.runtime-mode") is RuntimeExecutionMode.BATCH


class Operator(ABC):
    """One operator of a subtask.

    Before `open` it is plain data: it is pickled and sent to the slots, and every subtask opens its
    own copy. All methods are called by one thread. Emitted batches must not change afterwards.

    If user code raises, the operator emits the results of the records before the failing one and
    then raises UserFunctionError (see `user_code`), which names the record. If that is a poison
    record, `process` is called again with the records after it.
    """

    output: Output

    def open(self, context: OperatorContext, output: Output) -> None:
        """Called once, before anything else; an exception fails the deployment."""
        self.output = output

    @abstractmethod
    def process(self, batch: Batch, input_index: int = 0) -> None:
        """Process the records of one input, in order."""

    def on_watermark(self, watermark: Watermark) -> None:
        """Event time has reached `watermark` on all inputs.

        Emit what is due, then forward the watermark. The last one, at the end of the input, comes
        before `finish`.
        """
        self.output.emit_watermark(watermark)

    def on_watermark_status(self, status: WatermarkStatus) -> None:
        """All inputs have become idle, or one of them has become active again."""
        self.output.emit_watermark_status(status)

    def delivery(self) -> Delivery | None:
        """Its delivery guarantee, if it is a sink."""
        return None

    def keeps_state(self) -> bool:
        """Whether checkpoints include its state, as far as known before it is opened."""
        return False

    def next_timer(self) -> float | None:
        """When `fire_timers` is due, in seconds of the context's wall clock; None: never."""
        return None

    def fire_timers(self, now: float) -> None:
        """Fire what is due at `now`, in seconds of the context's wall clock."""

    def room(self) -> int | None:
        """How many records the next step should deliver; None: no limit."""
        return None

    def flush(self) -> None:
        """Emit what was held back for efficiency: a barrier or the end of a slice follows."""

    def snapshot(self, barrier: Barrier) -> OperatorSnapshot | None:
        """Freeze the state at this point, quickly; it is serialized later, on another thread."""
        return None

    def restore(self, snapshots: list[OperatorSnapshot]) -> None:
        """Restore the given state, right after `open`; several snapshots after rescaling."""

    def notify_complete(self, checkpoint_id: CheckpointId) -> None:
        """The checkpoint and all earlier ones are durable. May be called repeatedly."""

    def notify_aborted(self, checkpoint_id: CheckpointId) -> None:
        """The checkpoint will never complete."""

    def finish(self, input_index: int = 0) -> None:
        """No records follow on this input. Called once per input; emitting is still allowed."""

    def is_drained(self) -> bool:
        """Whether the subtask may end, after `finish` of the last input.

        Called only for the head of a chain, after every slice until it returns True.
        """
        return True

    def drain(self) -> None:
        """Wait until `is_drained`: the job stops, and no work may remain."""

    def close(self) -> None:
        """Release all resources; called once after `open`, even after a failure."""


@dataclass(frozen=True, slots=True)
class NeededFiles:
    """Files of an operator to copy into a savepoint."""

    urls: Mapping[str, str]
    """Their URLs, by path in `OperatorContext.owned_directory`."""
    release: Callable[[], None]
    """Called by any thread when they are copied, or no longer needed."""


@dataclass(frozen=True, slots=True)
class OperatorSnapshot:
    """Frozen state of one operator of a subtask."""

    keyed: KeyedStateImage | None = None
    """Keyed state: a new `FrozenState`, or a stored image on restore."""
    source_splits: tuple[Any, ...] = ()
    """For sources: the splits with the positions from which reading continues."""
    generator: Any = None
    """The picklable state of its watermark generator; None: it has none."""
    files: NeededFiles | None = None
    """Files that its state depends on; only for savepoints."""
