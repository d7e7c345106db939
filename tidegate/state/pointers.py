"""Pointers to stored state, never live state: what an acknowledgement and a checkpoint hold."""

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
    """One checkpoint: the file is beside the checkpoint's metadata and is deleted with it."""
    SHARED = "shared"
    """Every checkpoint that references it: it is deleted with the last of them."""


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file of a checkpoint, found by scope and name: checkpoints can be moved."""

    scope: FileScope
    name: str
    """Of an exclusive file it may be a path, such as "state/counts/total/part-0-5f0c.parquet"."""


def path_of(file: StoredFile, checkpoint: str) -> str:
    """The path of a file below the job's directory, for a checkpoint such as "chk-7"."""
    return f"{checkpoint if file.scope is FileScope.EXCLUSIVE else 'shared'}/{file.name}"


@dataclass(frozen=True, slots=True)
class InlineBytes:
    """State that is small enough to travel with its pointer."""

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
    """A part of a table, to be read by itself: the entries of a `StateChunk`."""

    groups: tuple[tuple[int, int], ...]
    """(key group, number of entries), ascending."""
    content: FileSegment


@dataclass(frozen=True, slots=True)
class TableHandle:
    """A Parquet file with entries of one state. Its segments follow each other without a gap."""

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
    """The keyed state of one operator of one subtask.

    As chunks, as the files of a database, or in the canonical form as tables.
    """

    metadata: tuple[StateMetadata, ...]
    max_parallelism: int
    key_groups: KeyGroupRange
    """Of the subtask that wrote it."""
    chunks: tuple[ChunkHandle, ...] = ()
    native_form: str | None = None
    """Which backend the files are of, such as "rocksdb"; None: chunks."""
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
    """How far event time had come on a channel."""

    edge: int
    source: int
    """The subtask that sends on it."""
    watermark: int
    is_idle: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeHandle:
    """How far event time had come for an operator of one subtask."""

    emitted: int = NO_WATERMARK
    """The last watermark that it emitted."""
    received: int = NO_WATERMARK
    """Of the head of a chain: the last one that it got."""
    inputs: tuple[tuple[int, int], ...] = ()
    """(input, its watermark), of a head."""
    channels: tuple[ChannelTime, ...] = ()
    """Of a head."""
    generator: bytes | None = None
    """What its watermark generator knew, pickled."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorHandle:
    """Everything that one operator of one subtask has stored in a checkpoint."""

    operator_id: OperatorId
    keyed: KeyedStateHandle | None = None
    operator: Segment | None = None
    """Its operator states: a pickled tuple of `FrozenOperatorState`."""
    operator_states: tuple[OperatorStateFacts, ...] = ()
    """What those are, known without loading them."""
    source_splits: tuple[bytes, ...] = ()
    """Pickled one by one, so that they can be dealt out without loading them."""
    in_flight: tuple[ChannelHandle, ...] = ()
    """What the subtask whose head this operator is has still to take in, channel by channel."""
    owned: tuple[FileSegment, ...] = ()
    """Of a savepoint: copies of the files that the splits count on, whole."""
    time: TimeHandle | None = None
    """None: no watermark has come yet."""

    @property
    def segments(self) -> list[Segment]:
        keyed = [] if self.keyed is None else self.keyed.segments
        operator = [] if self.operator is None else [self.operator]
        in_flight = [channel.content for channel in self.in_flight]
        return [*keyed, *operator, *in_flight, *self.owned]


@dataclass(frozen=True, slots=True, kw_only=True)
class SubtaskSnapshot:
    """What one subtask has stored in a checkpoint: its chain, the head first."""

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
