"""One keyed state in memory: a list by place, and the snapshots that share its values."""

from __future__ import annotations

import threading
from typing import Any, Final

import numpy as np

from tidegate.state.backend import StateMetadata
from tidegate.state.keys.word_index import Places
from tidegate.state.ttl import StateTtlConfig
from tidegate.types.privacy import private_copy

_sharing: Final = threading.Lock()


class StateTable:
    """The values of all keys of one state; None stands for no value.

    A frozen copy of the list shares the values. While it is in use, `owned` replaces a shared value
    with a copy on the first access, so that the user may change it in place.
    """

    __slots__ = ("frozen", "metadata", "ttl", "values")

    def __init__(self, metadata: StateMetadata, places: int = 0) -> None:
        self.metadata = metadata
        self.ttl: StateTtlConfig | None = None
        self.values: list[Any] = [None] * places
        """By place. The list itself is never replaced."""
        self.frozen: tuple[list[Any], ...] = ()

    def grow(self, places: int) -> None:
        self.values.extend([None] * (places - len(self.values)))

    def owned(self, place: int, value: Any) -> Any:
        """The live value of a place, unshared."""
        for values in self.frozen:
            if value is not None and place < len(values) and values[place] is value:
                value = self.values[place] = private_copy(value)
        return value

    def renumber(self, old: Places, new: Places) -> None:
        """Move the values at the old places to the new ones; no other places remain."""
        kept = [self.values[place] for place in old.tolist()]
        self.values[:] = [None] * len(kept)
        for place, value in zip(new.tolist(), kept, strict=True):
            self.values[place] = value

    def freeze(self) -> list[Any]:
        values = self.values.copy()
        with _sharing:
            self.frozen = (*self.frozen, values)
        return values

    def release(self, values: list[Any]) -> None:
        """Release frozen values. Called on any thread."""
        with _sharing:
            self.frozen = tuple(shared for shared in self.frozen if shared is not values)


def filled_places(values: list[Any]) -> Places:
    if None not in values:
        return np.arange(len(values))
    return np.array([place for place, value in enumerate(values) if value is not None], np.intp)
