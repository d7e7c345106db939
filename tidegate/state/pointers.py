"""Pointers to stored state, as used in acknowledgements and checkpoints."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from tidegate.core.ids import OperatorId
from tidegate.state.backend import StateMetadata
from tidegate.state.keys.key_groups import KeyGroupRange
from tidegate.state.operator_state import OperatorStateFacts
from tidegate.stream.elements import NO_WATERMARK


class FileScope(Enum):
    """The owner of a file, which decides the directory that holds it."""

    EXCLUSIVE = "exclusive"
    """One checkpoint: the file is next to its metadata and is deleted with it."""
    SHARED = "shared"
    """Every checkpoint that references it: it is deleted with the last of them."""


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file of a checkpoint, identified by scope and name: checkpoints can be moved."""

    scope: FileScope
    name: str
    """For exclusive files possibly a path, such as "state/counts/total/part-0-5f0c.parquet"."""


def path_of(file: StoredFile, checkpoint: str) -> str:
    """The path of a file below the job's directory, for a checkpoint such as "chk-7"."""
    return f"{checkpoint if file.scope is FileScope.EXCLUSIVE else 'shared'}/{file.name}"


@dataclass(frozen=True, slots=True)
class InlineBytes:
    """State that is small enough to be stored in its pointer."""

    data: bytes = field(repr=False)

    @property
    def size(self) -> int:
        return len(self.data)


@dataclass(frozen=True, slots=True)
class FileSegment:
    """Bytes within a file, and the checksum they must have (xxh3, 64 bits)."""

    file: StoredFile
    offset: int
    size: int
    checksum: int


Segment = InlineBytes | FileSegment


@dataclass(frozen=True, slots=True)
class ChunkHandle:
    """A stored `StateChunk`."""

    state: str
    groups: tuple[tuple[int, int], ...]
    """(key group, number of entries), ascending."""
    payload: Segment


@dataclass(frozen=True, slots=True)
class NativeFileHandle:
    """A stored `NativeFile`: a file of an embedded database, under its own name."""

    name: str
    content: Segment


@dataclass(frozen=True, slots=True)
class RowGroupHandle:
    """A part of a table that can be read separately: the entries of a `StateChunk`."""

    groups: tuple[tuple[int, int], ...]
    """(key group, number of entries), ascending."""
    content: FileSegment


@dataclass(frozen=True, slots=True)
class TableHandle:
    """A Parquet file with entries of one state. Its segments are contiguous."""

    state: str
    row_groups: tuple[RowGroupHandle, ...]
    footer: FileSegment
    """Schema and positions: everything after the row groups."""

    @property
    def segments(self) -> list[FileSegment]:
        return [*(group.content for group in self.row_groups), self.footer]

    @property
    def entries(self) -> int:
        return sum(count for each in self.row_groups for _, count in each.groups)


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyedStateHandle:
    """The keyed state of one operator of a subtask.

    As chunks, as files of a database, or as tables in the canonical form.
    """

    metadata: tuple[StateMetadata, ...]
    max_parallelism: int
    key_groups: KeyGroupRange
    """The key groups of the subtask that wrote it."""
    chunks: tuple[ChunkHandle, ...] = ()
    native_form: str | None = None
    """The backend of the files, such as "rocksdb"; None: chunks."""
    native_files: tuple[NativeFileHandle, ...] = ()
    tables: tuple[TableHandle, ...] = ()

    @property
    def segments(self) -> list[Segment]:
        chunks = [chunk.payload for chunk in self.chunks]
        files = [file.content for file in self.native_files]
        return [*chunks, *files, *(part for table in self.tables for part in table.segments)]


@dataclass(frozen=True, slots=True)
class ChannelHandle:
    """Stored stream elements that were in flight to a subtask when a barrier overtook them."""

    edge: int
    source: int
    """The subtask that sent them."""
    content: Segment


@dataclass(frozen=True, slots=True)
class ChannelTime:
    edge: int
    source: int
    """The subtask that sends on it."""
    watermark: int
    is_idle: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeHandle:
    """The event time of an operator of a subtask."""

    emitted: int = NO_WATERMARK
    """The last emitted watermark."""
    received: int = NO_WATERMARK
    """For the head of a chain: the last received watermark."""
    inputs: tuple[tuple[int, int], ...] = ()
    """For the head: (input, its watermark)."""
    channels: tuple[ChannelTime, ...] = ()
    """For the head."""
    generator: bytes | None = None
    """The pickled state of its watermark generator."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorHandle:
    """Everything that one operator of a subtask has stored in a checkpoint."""

    operator_id: OperatorId
    keyed: KeyedStateHandle | None = None
    operator: Segment | None = None
    """Its operator states: a pickled tuple of `FrozenOperatorState`."""
    operator_states: tuple[OperatorStateFacts, ...] = ()
    """Their descriptions, available without loading them."""
    source_splits: tuple[bytes, ...] = ()
    """Pickled one by one, so that they can be redistributed without loading them."""
    in_flight: tuple[ChannelHandle, ...] = ()
    """For the head: elements that the subtask must still process, by channel."""
    owned: tuple[FileSegment, ...] = ()
    """In a savepoint: complete copies of the files that the splits reference."""
    time: TimeHandle | None = None
    """None: no watermark yet."""

    @property
    def segments(self) -> list[Segment]:
        keyed = [] if self.keyed is None else self.keyed.segments
        operator = [] if self.operator is None else [self.operator]
        in_flight = [channel.content for channel in self.in_flight]
        return [*keyed, *operator, *in_flight, *self.owned]


@dataclass(frozen=True, slots=True, kw_only=True)
class SubtaskSnapshot:
    """What one subtask has stored in a checkpoint: the operators of its chain, head first."""

    operators: tuple[OperatorHandle, ...]
    ended_inputs: frozenset[int] = frozenset()
    """Inputs of the subtask that had ended."""

    @property
    def segments(self) -> list[Segment]:
        return [segment for operator in self.operators for segment in operator.segments]

    @property
    def files(self) -> frozenset[StoredFile]:
        return frozenset(s.file for s in self.segments if isinstance(s, FileSegment))

    @property
    def size(self) -> int:
        """Bytes that a restore reads."""
        splits = sum(len(split) for operator in self.operators for split in operator.source_splits)
        return splits + sum(segment.size for segment in self.segments)
