"""The layout of keyed state in a database: one entry for each key and state.

    key group    2 bytes, so that the entries of a range of key groups are contiguous
    key          `key_bytes`; for a timer: 0xFF, `key_bytes`, and its time as 8 bytes
    state        2 bytes, the number of the state

The value of an entry begins with the key if that cannot be decoded from its bytes, followed by the
payload: a pickled value, a row of columns, or the registration number of a timer.
"""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from typing import Any, Final

from tidegate.state.keys.hash_columns import Hashes
from tidegate.state.keys.key_bytes import is_plain, key_bytes, key_of_bytes
from tidegate.state.keys.key_groups import KeyGroupRange, key_groups_of

_PLAIN: Final = b"\0"
_TIMER: Final = b"\xff"
_LEAST_TIME: Final = -(1 << 63)


def state_suffix(number: int) -> bytes:
    """The end of the keys of all entries of a state."""
    return number.to_bytes(2, "big")


def stems_of(keys: Sequence[Any], hashes: Hashes, max_parallelism: int) -> list[bytes]:
    """Key group and key: the prefix of each key's entries."""
    groups = key_groups_of(hashes, max_parallelism).astype(">u2").tobytes()
    return [
        groups[start : start + 2] + key_bytes(key)
        for start, key in zip(range(0, 2 * len(keys), 2), keys, strict=True)
    ]


def head_of(key: Any) -> bytes:
    """The beginning of the values of this key's entries; the payload follows."""
    if is_plain(key):
        return _PLAIN
    stored = pickle.dumps(key, protocol=5)
    return b"\1" + len(stored).to_bytes(4, "big") + stored


def payload_of(content: bytes) -> bytes:
    if content[0] == 0:
        return content[1:]
    return content[5 + int.from_bytes(content[1:5], "big") :]


def key_of(stem: bytes, content: bytes) -> Any:
    """The key of an entry, from its stem and value."""
    if content[0] == 0:
        return key_of_bytes(stem[2:])
    return pickle.loads(content[5 : 5 + int.from_bytes(content[1:5], "big")])


def timer_stem(stem: bytes, timestamp: int) -> bytes:
    """The stem of a timer, from the stem of its key."""
    return stem[:2] + _TIMER + stem[2:] + (timestamp - _LEAST_TIME).to_bytes(8, "big")


def is_timer(stem: bytes) -> bool:
    return stem[2:3] == _TIMER


def timer_of(stem: bytes) -> tuple[bytes, int]:
    """The stem of the key and the time of a timer."""
    return stem[:2] + stem[3:-8], int.from_bytes(stem[-8:], "big") + _LEAST_TIME


def group_of(key: bytes) -> int:
    return int.from_bytes(key[:2], "big")


def bounds_of(key_groups: KeyGroupRange) -> tuple[bytes, bytes]:
    return key_groups.start.to_bytes(2, "big"), key_groups.stop.to_bytes(2, "big")


def timer_bounds_of(group: int) -> tuple[bytes, bytes]:
    return group.to_bytes(2, "big") + _TIMER, (group + 1).to_bytes(2, "big")
