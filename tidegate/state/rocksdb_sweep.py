"""Removal of expired values from a database, a few at a time."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from itertools import islice

from tidegate.state.hashmap_ttl import Lifetime
from tidegate.state.key_groups import KeyGroupRange
from tidegate.state.rocksdb_entries import bounds_of, is_timer, payload_of
from tidegate.state.rocksdb_store import LocalStore


class ExpirySweep:
    """Goes through all entries about once in the shortest lifetime of a state.

    An entry of a key that is in memory may go too: if it lives on there, it is written again.
    """

    def __init__(self, store: LocalStore, key_groups: KeyGroupRange) -> None:
        self._store = store
        self._start, self._stop = bounds_of(key_groups)
        self._next = self._start
        self._next_pass = 0

    def go_on(self, lifetimes: Mapping[bytes, Lifetime], records: int) -> None:
        """Look at some more entries, after so many records; states by their suffix."""
        looked_at = records * max(lifetime.cleanup_size for lifetime in lifetimes.values())
        now = next(iter(lifetimes.values())).now()
        if not looked_at or (self._next == self._start and now < self._next_pass):
            return
        if self._next == self._start:
            self._next_pass = now + min(lifetime.milliseconds for lifetime in lifetimes.values())
        expired: list[tuple[bytes, None]] = []
        last = b""
        for last, content in islice(self._store.scan((self._next, self._stop)), looked_at):
            lifetime = lifetimes.get(last[-2:])
            if lifetime is None or is_timer(last):
                continue
            if lifetime.living(pickle.loads(payload_of(content)), now) is None:
                expired.append((last, None))
        if expired:
            self._store.write(expired)
        self._next = last + b"\0" if last else self._start
