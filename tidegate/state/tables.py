"""One keyed state in memory: a dict, and the snapshots that still share its values."""

from __future__ import annotations

import threading
from typing import Any, Final

from tidegate.state.backend import StateMetadata
from tidegate.state.copies import private_copy
from tidegate.state.ttl import StateTtlConfig

_sharing: Final = threading.Lock()


class Table:
    """The values of all keys of one state.

    A frozen copy of the dict shares the values. As long as it is read, `owned` gives a value that
    the user may change in place: on the first access a copy takes the place of the shared one.
    """

    __slots__ = ("entries", "frozen", "metadata", "ttl")

    def __init__(self, metadata: StateMetadata, ttl: StateTtlConfig | None = None) -> None:
        self.metadata = metadata
        self.ttl = ttl
        self.entries: dict[Any, Any] = {}
        self.frozen: tuple[dict[Any, Any], ...] = ()

    def owned(self, key: Any, value: Any) -> Any:
        """The live value of a key, unshared."""
        for entries in self.frozen:
            if value is not None and entries.get(key) is value:
                value = self.entries[key] = private_copy(value)
        return value

    def freeze(self) -> dict[Any, Any]:
        """The entries as they are now."""
        entries = self.entries.copy()
        with _sharing:
            self.frozen = (*self.frozen, entries)
        return entries

    def release(self, entries: dict[Any, Any]) -> None:
        """Nobody reads these frozen entries any more. Called on any thread."""
        with _sharing:
            self.frozen = tuple(shared for shared in self.frozen if shared is not entries)
