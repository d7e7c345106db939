"""The contracts of state backends and their snapshots.

    a batch   places = backend.places_of(keys)
    a record  backend.place, backend.current_key = …   then the user: state.value(), …
    barrier   frozen = backend.freeze()                on the mailbox thread, quick
              frozen.chunks() … release()              on another thread, while records flow
    restore   backend.restore(images)

A restored subtask takes the entries of its own key groups from each image.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, NoReturn, Protocol

from tidegate.core.errors import StateMisuse
from tidegate.state.descriptors import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateDescriptor,
    ValueStateDescriptor,
)
from tidegate.state.handles import AggregatingState, ListState, MapState, ReducingState, ValueState
from tidegate.state.keys.key_groups import KeyGroupRange
from tidegate.state.keys.selection import KeyColumns
from tidegate.state.timers import TimerQueue
from tidegate.types.evolution import TypeStructure


class PayloadForm(Enum):
    """How the entries of a chunk are encoded."""

    PICKLE = auto()
    """(keys, values), pickled: the keys as bytes, of a pickled list or of columns as an Arrow IPC
    stream; the values as a list, or as the bytes of one column."""
    ARROW = auto()
    """An Arrow IPC stream whose first column is the key."""


@dataclass(frozen=True, slots=True)
class StateMetadata:
    """The description of a stored state, available without reading it."""

    name: str
    declaration: str
    """Kind and type as text, from `StateDescriptor.declaration`."""
    form: PayloadForm = PayloadForm.PICKLE
    structure: TypeStructure | None = field(default=None, compare=False)
    """`StateDescriptor.structure`; None: it was not stored, or the state has no descriptor."""

    @classmethod
    def of(cls, descriptor: StateDescriptor) -> StateMetadata:
        return cls(descriptor.name, descriptor.declaration, structure=descriptor.structure)

    def document(self) -> dict[str, Any]:
        """The metadata as JSON."""
        return {
            "name": self.name,
            "declaration": self.declaration,
            "form": self.form.name.lower(),
            "structure": None if self.structure is None else self.structure.document(),
        }

    @classmethod
    def of_document(cls, document: Any) -> StateMetadata:
        """The metadata from JSON, in which the structure may be missing."""
        structure = document.get("structure")
        return cls(
            document["name"],
            document["declaration"],
            PayloadForm[document["form"].upper()],
            None if structure is None else TypeStructure.of_document(structure),
        )


@dataclass(frozen=True, slots=True)
class StateChunk:
    """Entries of one state, ordered by key group."""

    state: str
    groups: tuple[tuple[int, int], ...]
    """(key group, number of entries), ascending."""
    payload: bytes

    @property
    def key_groups(self) -> KeyGroupRange:
        return KeyGroupRange(self.groups[0][0], self.groups[-1][0] + 1)

    def span_in(self, key_groups: KeyGroupRange) -> tuple[int, int]:
        """The range of entries that belong to these key groups."""
        before = sum(count for group, count in self.groups if group < key_groups.start)
        within = sum(count for group, count in self.groups if group in key_groups)
        return before, before + within


@dataclass(frozen=True, slots=True)
class NativeFile:
    """A file of a backend's database, on the local disk."""

    name: str
    path: Path
    is_immutable: bool
    """Whether the content under this name never changes, so that checkpoints can share the file."""


class KeyedStateImage(ABC):
    """The keyed state of one operator of a subtask at one moment, read in chunks."""

    metadata: tuple[StateMetadata, ...]
    max_parallelism: int
    key_groups: KeyGroupRange
    """The key groups of the subtask."""
    native_form: str | None = None
    """The backend that can restore the image from files, see `fetch`; None: only chunks."""
    descriptors: Mapping[str, StateDescriptor] = MappingProxyType({})
    """The declarations of the states, as far as known."""

    def fetch(self, directory: Path) -> None:
        """Put the native files into a directory that does not exist yet."""
        raise StateMisuse("this image has no native files")

    @abstractmethod
    def chunks(self, key_groups: KeyGroupRange | None = None) -> Iterator[StateChunk]:
        """The chunks with entries of these key groups, perhaps among others; all by default.

        May be called on any thread, and more than once.
        """


class FrozenState(KeyedStateImage):
    """Newly frozen state. Until it is released, changes of the live state cost more."""

    def native_files(self) -> Sequence[NativeFile]:
        """The files to store instead of chunks if `native_form` is set.

        Called once, on another thread; the slow part of a snapshot happens here.
        """
        return ()

    @abstractmethod
    def release(self) -> None:
        """Release the image. May be called on any thread, and more than once."""


class NoKey:
    """Stands in for the state of a key where there is none: using it raises an error."""

    def __init__(self, reason: str) -> None:
        self._reason = reason

    def refuse(self, *_: object) -> NoReturn:
        raise StateMisuse(self._reason)

    __index__ = refuse


NO_KEY: Final = NoKey(
    "there is no current key: use keyed state and timers while a record "
    "or a timer is processed, not in open(), close() or checkpoint methods"
)


class PlaceHolder(Protocol):
    """Holds the place that its handles refer to, and copies objects to make them private."""

    @property
    def place(self) -> Any: ...

    @property
    def private(self) -> Callable[[Any], Any]: ...


class KeyedStateBackend(ABC):
    """The state of all keys of one operator in one subtask. Used by one thread.

    Handles refer to the place of the current key, unless created with another holder.
    """

    current_key: Any
    """The key of the current record; the operator sets it, and `place`, for every record."""
    place: Any
    """The place of the current key's state, which all handles refer to."""
    processing_timers: TimerQueue
    event_timers: TimerQueue

    def leave_key(self, reason: NoKey | None = None) -> None:
        """Leave the current key: using state raises an error until the next key is set."""
        self.current_key, self.place = None, reason or NO_KEY

    @abstractmethod
    def places_of(self, keys: Sequence[Any], columns: KeyColumns | None = None) -> Sequence[Any]:
        """The places of these keys' state, valid until `clean_up` or a restore.

        `columns`, if given, are the same keys.
        """

    @abstractmethod
    def value_state(
        self, descriptor: ValueStateDescriptor, holder: PlaceHolder | None = None
    ) -> ValueState[Any]: ...

    @abstractmethod
    def list_state(
        self, descriptor: ListStateDescriptor, holder: PlaceHolder | None = None
    ) -> ListState[Any]: ...

    @abstractmethod
    def map_state(
        self, descriptor: MapStateDescriptor, holder: PlaceHolder | None = None
    ) -> MapState[Any, Any]: ...

    @abstractmethod
    def reducing_state(
        self, descriptor: ReducingStateDescriptor, holder: PlaceHolder | None = None
    ) -> ReducingState[Any]: ...

    @abstractmethod
    def aggregating_state(
        self, descriptor: AggregatingStateDescriptor, holder: PlaceHolder | None = None
    ) -> AggregatingState[Any, Any]: ...

    def ready_timers(self, timers: TimerQueue, now: int) -> int:
        """Load the state of due timers into their places.

        Returns:
            The time up to which this is done: fire those timers, clean up, and call again.
        """
        return now

    @abstractmethod
    def keys(self, state: str) -> Iterable[Any]:
        """The keys that have a value in this state."""

    @abstractmethod
    def freeze(self) -> FrozenState:
        """The state as it is now, regardless of later changes. Called between two records."""

    @abstractmethod
    def restore(self, images: Iterable[KeyedStateImage]) -> None:
        """Restore the entries of this subtask's key groups; before the first record."""

    def clean_up(self, records: int) -> None:
        """Free memory; called between batches, with the number of records since the last call."""

    def close(self) -> None:
        """Release all resources."""


def check_max_parallelism_unchanged(stored: int, current: int) -> None:
    """Check the max parallelism: with another one, key groups contain other keys."""
    if stored != current:
        raise StateMisuse(
            f"the state was written with a max parallelism of {stored}, but the job has {current}: "
            f"set the max parallelism to {stored}; it cannot change for existing state"
        )
