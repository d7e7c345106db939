"""What a source is: splits that exist, readers that read them, positions that can be sought.

    driver                               slot
    ┌──────────────────┐  splits in the  ┌──────────────┐
    │ SplitEnumerator  │ ──────────────▶ │ SourceReader │ ── batches
    └──────────────────┘  step request   └──────────────┘

A split is a picklable value that says what to read and from which position; a reader's snapshot is
the list of its splits with the positions reached, so that adding these splits to a new reader
continues exactly after the last record that was returned.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Hashable, Mapping, Sequence
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
    """Nothing now; more may come. The reader is asked `is_available` until it says so."""
    END_OF_INPUT = auto()
    """Nothing will ever come: no split is left and none will be added."""


@dataclass(frozen=True, slots=True)
class Poll:
    """What a reader returned: at most the records asked for, and what to expect next."""

    batch: Batch | None
    status: InputStatus
    split: Hashable = None
    """`SourceReader.split_key` of the split that all records are of; None: it is not known."""
    ended: tuple[Hashable, ...] = ()
    """The keys of splits that were read to their end."""


class Undecodable(Protocol):
    """What a reader calls for a record that it cannot decode.

    If the call returns, the record is skipped, and what it was is on its way to the dead letters:
    the reader continues after it. Otherwise it raises, and the reader lets that pass.
    """

    def __call__(self, position: str, raw: bytes, error: Exception, /) -> None:
        """`position` names the record for good, such as topic, partition and offset."""


def refuse(position: str, raw: bytes, error: Exception) -> None:
    """Leave no record out."""
    if isinstance(error, TidegateError):
        raise error
    raise UndecodableRecord(position, raw, f"{type(error).__name__}: {error}") from error


@dataclass(frozen=True, slots=True)
class ReaderContext:
    """Who the reader is, and what it may use."""

    subtask: int
    parallelism: int
    clock: Clock
    format: ArrowFormat | None
    """How the records of the stream travel; None for pickled Python objects."""
    operator_name: str = ""
    attempt: int = 1
    """How often the region of the source was deployed."""
    operator_state: OperatorStateStore = field(default_factory=OperatorStateStore)
    """What the reader remembers beside its splits, restored already. At a barrier it is stored
    as it is when `SourceReader.snapshot` returns."""
    undecodable: Undecodable = refuse
    """To be called for a record that cannot be decoded; see there."""
    job_id: str = ""
    """The same over all restarts of the job."""
    directory: str | None = None
    """Where the source may keep files that its splits count on, for this operator alone: it goes
    with the job's last checkpoint. None: checkpoints end with the driver."""
    origin: str | None = None
    """That directory of another job, or its copy in a savepoint, if this reader is restored from
    there. Files are copied out of it, because it may be gone when the job has a checkpoint."""
    retained_checkpoints: int = 1
    """How many completed checkpoints are kept, so that one may go back to."""
    has_event_time: bool = False
    """Whether watermarks are made for each split: polls should say of which split they are."""
    is_logged: bool = False
    """Whether the reader is notified by `notify_logged` when what it returned is durable."""
    permit: Permit = Permit()
    """To be asked right before anything outside is committed or deleted."""


class SourceReader(ABC):
    """Reads splits in one subtask. All methods are called by one thread."""

    def open(self) -> None:
        """Called once, before all other methods."""

    @abstractmethod
    def add_splits(self, splits: Sequence[Any]) -> None:
        """Begin to read these too, each from the position it holds."""

    def no_more_splits(self) -> None:
        """No split will be added any more: END_OF_INPUT may follow once all are read."""

    @abstractmethod
    def poll(self, max_records: int) -> Poll:
        """Return what can be had without waiting, at most `max_records` records.

        The batch is given away, with its list of records; the records may be used again.
        """

    def split_key(self, split: Any) -> Hashable:
        """What stays the same of a split while it is read; None: polls do not tell splits apart.

        Where they do, each split has its own watermark. Before the first record of a split it
        holds event time back only if the reader `reads_all_at_once`.
        """
        return None

    reads_all_at_once = False
    """Whether records of all splits come in turn, rather than split by split."""

    def pause(self, splits: Collection[Hashable]) -> None:
        """Return records of all but these splits, named by `split_key`, until the next call.

        Called where watermarks are aligned. A reader that goes on all the same lets splits of one
        subtask drift apart.
        """

    def is_available(self) -> bool:
        """Whether `poll` would return records, or the end, now. Must be cheap: asked while idle."""
        return True

    @abstractmethod
    def snapshot(self) -> list[Any]:
        """The unfinished splits, each with the position *after* the last record returned.

        A position before it would repeat a record after a recovery, one beyond it lose one.
        """

    def files_of(self, splits: Sequence[Any]) -> Mapping[str, str]:
        """The files that this snapshot counts on beside the outside world, as paths or URLs.

        By their path in `ReaderContext.directory`. A savepoint holds a copy of them, which whoever
        is restored from it finds under the same path in `ReaderContext.origin`. The reader hears of
        no completed checkpoint before they are copied.
        """
        return {}

    def halt(self) -> None:
        """The job ends with the snapshot that follows: take in nothing after it."""

    def go_on(self) -> None:
        """The stop has failed: the job continues."""

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
        """Release everything. Called once, even if `open` has raised."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EnumeratorContext:
    """The job and the operator that an enumerator works for."""

    job_id: str = ""
    operator_id: str = ""
    is_checkpointed: bool = False
    """Whether checkpoints are taken: otherwise a failed job starts fresh."""
    retained_checkpoints: int = 1
    """How many completed checkpoints are kept, so that one may go back to."""
    directory: str | None = None
    """Where a source may keep files that its checkpoints count on: it goes with the job's last
    checkpoint. None: checkpoints end with this process."""


class SplitEnumerator(ABC):
    """Finds splits and gives them to readers; lives in the driver."""

    context = EnumeratorContext()
    """Set before `open`."""

    def open(self) -> None:
        """Called once, before all other methods."""

    @abstractmethod
    def next_splits(self, parallelism: int) -> dict[int, list[Any]]:
        """Splits discovered since the last call, by the subtask that should read them."""

    def is_ready(self) -> bool:
        """Whether `next_splits` has found out once what there is to read.

        An enumerator that looks for splits in the background returns False until then. What it
        raises before ends the job as a mistake at the start; later failures restart it.
        """
        return True

    def is_exhausted(self) -> bool:
        """Whether no further split will ever be found: readers are notified by `no_more_splits`."""
        return True

    def add_back(self, splits: Sequence[Any]) -> None:
        """Splits that were assigned after the checkpoint a failed region went back to."""

    def snapshot(self) -> Any:
        """A picklable value from which `restore` finds every split exactly once."""
        return None

    def restore(self, state: Any) -> None:
        """Take over what `snapshot` returned, before the first `next_splits`."""

    def close(self) -> None:
        """Release everything."""


class Source(ABC):
    """A source as the user names it in a program. Travels pickled."""

    boundedness: Boundedness = Boundedness.BOUNDED

    @abstractmethod
    def create_enumerator(self) -> SplitEnumerator:
        """A new enumerator, in the driver."""

    @abstractmethod
    def create_reader(self, context: ReaderContext) -> SourceReader:
        """A new reader, in a slot."""

    def produced_type(self) -> TypeInformation | None:
        """The type of the records, if the source knows it; a declared type takes precedence."""
        return None

    def replay(self) -> Replay:
        """Whether readers return the same records again when they get older splits."""
        return Replay(True, "replays from its positions")

    def max_readers(self) -> int | None:
        """The largest useful number of readers (1 for a socket); None: any number."""
        return None

    def durable(self) -> Source:
        """This source with a log of its records, kept with the checkpoints of the job."""
        from tidegate.connectors.durable.source import DurableSource

        return DurableSource(self)
