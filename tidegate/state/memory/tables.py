"""One keyed state in memory: a list by slot, and the snapshots that still share its values."""

from __future__ import annotations

import threading
from typing import Any, Final

import numpy as np

from tidegate.state.backend import StateMetadata
from tidegate.state.keys.word_index import Slots
from tidegate.state.ttl import StateTtlConfig
from tidegate.types.privacy import private_copy

_sharing: Final = threading.Lock()


class StateTable:
    """The values of all keys of one state; None stands for no value.

    A frozen copy of the list shares the values. As long as it is read, `owned` gives a value that
    the user may change in place: on the first access a copy takes the place of the shared one.
    """

    __slots__ = ("frozen", "metadata", "ttl", "values")

    def __init__(self, metadata: StateMetadata, slots: int = 0) -> None:
        self.metadata = metadata
        self.ttl: StateTtlConfig | None = None
        self.values: list[Any] = [None] * slots
        """By slot. The list itself is never replaced."""
        self.frozen: tuple[list[Any], ...] = ()

    def grow(self, slots: int) -> None:
        """There are so many slots now."""
        self.values.extend([None] * (slots - len(self.values)))

    def owned(self, slot: int, value: Any) -> Any:
        """The live value of a slot, unshared."""
        for values in self.frozen:
            if value is not None and slot < len(values) and values[slot] is value:
                value = self.values[slot] = private_copy(value)
        return value

    def renumber(self, old: Slots, new: Slots) -> None:
        """Move what stands at the old slots to the new ones; there are no others any more."""
        kept = [self.values[slot] for slot in old.tolist()]
        self.values[:] = [None] * len(kept)
        for slot, value in zip(new.tolist(), kept, strict=True):
            self.values[slot] = value

    def freeze(self) -> list[Any]:
        """The values as they are now."""
        values = self.values.copy()
        with _sharing:
            self.frozen = (*self.frozen, values)
        return values

    def release(self, values: list[Any]) -> None:
        """Nobody reads these frozen values any more. Called on any thread."""
        with _sharing:
            self.frozen = tuple(shared for shared in self.frozen if shared is not values)


def filled_slots(values: list[Any]) -> Slots:
    """The slots that hold something."""
    if None not in values:
        return np.arange(len(values))
    return np.array([slot for slot, value in enumerate(values) if value is not None], np.intp)
