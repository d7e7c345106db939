"""The contract of sources: splits, and readers that can resume at their positions.

    driver                               slot
    ┌──────────────────┐  splits in the  ┌──────────────┐
    │ SplitEnumerator  │ ──────────────▶ │ SourceReader │ ── batches
    └──────────────────┘  step request   └──────────────┘

A split is a picklable value that says what to read and from which position. A reader's snapshot is
the list of its splits with the positions reached: a new reader that gets these splits continues
exactly after the last returned record.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any, Protocol

from tidegate.connectors.guarantee import Replay
from tidegate.core.clock import Clock
from tidegate.core.errors import TidegateError, UndecodableRecord
from tidegate.core.ids import CheckpointId
from tidegate.core.permit import Permit
from tidegate.state.operator_state import OperatorStateStore
from tidegate.stream.batch import Batch
from tidegate.types.arrow import ArrowFormat
from tidegate.types.typeinfo import TypeInformation


class Boundedness(Enum):
    """Whether a source ends by itself."""

    BOUNDED = auto()
    CONTINUOUS_UNBOUNDED = auto()


class InputStatus(Enum):
    """What a reader knows after a poll."""

    MORE_AVAILABLE = auto()
    """Another poll would return records at once."""
    NOTHING_AVAILABLE = auto()
    """Nothing now; more may come. `is_available` is called until it returns True, as often as
    `available_in` says."""
    END_OF_INPUT = auto()
    """Nothing will ever come: no split is left, and none will be added."""


@dataclass(frozen=True, slots=True)
class Poll:
    """At most the requested number of records, and what to expect next."""

    batch: Batch | None
    status: InputStatus
    split: Hashable = None
    """`SourceReader.split_key` of the split of all records; None: unknown."""
    ended: tuple[Hashable, ...] = ()
    """The keys of splits that were read to their end."""


class Undecodable(Protocol):
    """Called by a reader for a record that it cannot decode.

    If the call returns, the record is skipped and sent to the dead letters: the reader continues
    after it. Otherwise it raises, and the reader must let that pass.
    """

    def __call__(self, position: str, raw: bytes, error: Exception, /) -> None:
        """`position` identifies the record permanently, such as topic, partition and offset."""


def refuse(position: str, raw: bytes, error: Exception) -> None:
    """Fail instead of skipping the record."""
    if isinstance(error, TidegateError):
        raise error
    raise UndecodableRecord(position, raw, f"{type(error).__name__}: {error}") from error


@dataclass(frozen=True, slots=True)
class ReaderContext:
    """The identity of the reader, and what it may use."""

    subtask: int
    parallelism: int
    clock: Clock
    format: ArrowFormat | None
    """The format of the stream; None for pickled Python objects."""
    operator_name: str = ""
    attempt: int = 1
    """How often the source's region was deployed."""
    operator_state: OperatorStateStore = field(default_factory=OperatorStateStore)
    """State of the reader besides its splits, already restored. A barrier stores it after
    `SourceReader.snapshot`."""
    undecodable: Undecodable = refuse
    """Call it for a record that cannot be decoded."""
    job_id: str = ""
    """Stays the same when the job restarts."""
    directory: str | None = None
    """A directory for files of this operator that its splits reference; it is deleted with the
    job's last checkpoint. None: checkpoints end with the driver."""
    origin: str | None = None
    """The directory of another job, or its copy in a savepoint, if the reader is restored from
    there. Copy files out of it, because it may be deleted once the job has a checkpoint."""
    retained_checkpoints: int = 1
    """How many completed checkpoints are kept; the job may be restored from any of them."""
    has_event_time: bool = False
    """Whether watermarks are generated per split: polls should name the split."""
    is_logged: bool = False
    """Whether `notify_logged` tells the reader when returned records are durable."""
    permit: Permit = Permit()
    """Ask it right before every external commit or deletion."""
    wake: Callable[[], None] = lambda: None
    """Call it, on any thread, after input has arrived that `SourceReader.available_in` could not
    foresee: the slot then calls `is_available`. Cheap enough to be called for every record."""


class SourceReader(ABC):
    """Reads splits in one subtask. All methods are called by one thread."""

    def open(self) -> None:
        """Called once, before all other methods."""

    @abstractmethod
    def add_splits(self, splits: Sequence[Any]) -> None:
        """Begin to read these splits, too, each from its position."""

    def no_more_splits(self) -> None:
        """No more splits will be added: END_OF_INPUT may follow once all are read."""

    @abstractmethod
    def poll(self, max_records: int) -> Poll:
        """Return what is available without waiting, at most `max_records` records.

        The caller owns the batch and its list of records; the records may be reused.
        """

    def split_key(self, split: Any) -> Hashable:
        """A key that stays the same while a split is read; None: polls do not name splits.

        With keys, each split has its own watermark. Before its first record, a split holds event
        time back only if the reader `reads_all_at_once`.
        """
        return None

    reads_all_at_once = False
    """Whether records of all splits come in turn, rather than split by split."""

    def pause(self, splits: Collection[Hashable]) -> None:
        """Return no records of these splits, identified by `split_key`, until the next call.

        Called if watermarks are aligned. A reader that ignores it lets the splits of a subtask
        drift apart.
        """

    def is_available(self) -> bool:
        """Whether `poll` would return records, or the end. Must be cheap: called while idle."""
        return True

    def available_in(self) -> float:
        """In how many seconds `is_available` may return True, if it returns False now.

        A reader that knows this costs nothing while it is idle. `math.inf`: only after `add_splits`
        or `no_more_splits`, or when the reader calls `ReaderContext.wake`. 0: unknown, therefore
        `is_available` is called every 10 to 100 ms.
        """
        return 0.0

    @abstractmethod
    def snapshot(self) -> list[Any]:
        """The unfinished splits, each with the position *after* the last returned record.

        After a recovery, an earlier position would repeat a record, and a later one would lose one.
        """

    def files_of(self, splits: Sequence[Any]) -> Mapping[str, str]:
        """The files that this snapshot references, as paths or URLs.

        The keys are paths in `ReaderContext.directory`. A savepoint has a copy of the files, under
        the same paths in `ReaderContext.origin` of a reader restored from it. No checkpoint is
        reported complete before they are copied.
        """
        return {}

    def halt(self) -> None:
        """The job stops with the next snapshot: take in nothing after it."""

    def go_on(self) -> None:
        """The stop was aborted: the job continues."""

    def pending_records(self) -> int | None:
        """The lag: the number of records that wait to be read, if known."""
        return None

    def notify_logged(self) -> None:
        """After `durable()`: everything returned so far is in the log."""

    def notify_complete(self, checkpoint_id: CheckpointId, splits: Sequence[Any]) -> None:
        """The checkpoint with this snapshot is durable."""

    def notify_aborted(self, checkpoint_id: CheckpointId) -> None:
        """The checkpoint will never complete."""

    def close(self) -> None:
        """Release all resources. Called once, even if `open` has raised."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EnumeratorContext:
    """The job and the operator of an enumerator."""

    job_id: str = ""
    operator_id: str = ""
    is_checkpointed: bool = False
    """Whether checkpoints are enabled: otherwise, a failed job starts fresh."""
    retained_checkpoints: int = 1
    """How many completed checkpoints are kept; the job may be restored from any of them."""
    directory: str | None = None
    """A directory for files that the source's checkpoints reference; it is deleted with the job's
    last checkpoint. None: checkpoints end with this process."""


class SplitEnumerator(ABC):
    """Finds splits and assigns them to readers; runs in the driver."""

    context = EnumeratorContext()
    """Set before `open`."""

    def open(self) -> None:
        """Called once, before all other methods."""

    @abstractmethod
    def next_splits(self, parallelism: int) -> dict[int, list[Any]]:
        """Splits discovered since the last call, by the subtask that should read them."""

    def is_ready(self) -> bool:
        """Whether `next_splits` has once listed what there is to read.

        An enumerator that looks for splits in the background returns False until then. An error
        before that ends the job as a start-up mistake; later errors restart it.
        """
        return True

    def is_exhausted(self) -> bool:
        """Whether no more splits will be found; `no_more_splits` then tells the readers."""
        return True

    def add_back(self, splits: Sequence[Any]) -> None:
        """Take back splits that were assigned after the checkpoint of a restored region."""

    def snapshot(self) -> Any:
        """A picklable value from which `restore` finds every split exactly once."""
        return None

    def restore(self, state: Any) -> None:
        """Restore from what `snapshot` returned, before the first `next_splits`."""

    def close(self) -> None:
        """Release all resources."""


class Source(ABC):
    """A source as a program declares it. It is pickled and sent to the slots."""

    boundedness: Boundedness = Boundedness.BOUNDED

    @abstractmethod
    def create_enumerator(self) -> SplitEnumerator:
        """Create an enumerator, in the driver."""

    @abstractmethod
    def create_reader(self, context: ReaderContext) -> SourceReader:
        """Create a reader, in a slot."""

    def produced_type(self) -> TypeInformation | None:
        """The type of the records, if the source knows it; a declared type takes precedence."""
        return None

    def replay(self) -> Replay:
        """Whether readers return the same records again for earlier splits."""
        return Replay(True, "replays from its positions")

    def max_readers(self) -> int | None:
        """The largest useful number of readers (1 for a socket); None: any number."""
        return None

    def durable(self) -> Source:
        """This source with a log of its records, kept with the checkpoints of the job."""
        from tidegate.connectors.durable.source import DurableSource

        return DurableSource(self)
