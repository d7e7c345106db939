"""Keys of windows: the state of a window has its own place, in the key group of its key.

A backend numbers such a key like any other. It is a plain tuple that begins with a mark, which no
user's key contains, followed by the key and what identifies the window.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from tidegate.state.keys.hash_columns import Hashes, hash_values

WindowKey = tuple[Any, ...]
"""(OF_WINDOW, key, *parts of the window); the parts of a time window are start and end."""


class OF_WINDOW:  # noqa: N801 - the class itself is the mark: it is pickled by name, compared by `is`
    """Marks the key of a window."""


_KEY: Final = 1


def window_key(key: Any, *parts: Any) -> WindowKey:
    """The key of a window, which these parts identify among the windows of the key."""
    return OF_WINDOW, key, *parts


def is_window_key(key: Any) -> bool:
    return type(key) is tuple and len(key) > _KEY and key[0] is OF_WINDOW


def key_of_window(key: WindowKey) -> Any:
    return key[_KEY]


def parts_of(key: WindowKey) -> tuple[Any, ...]:
    """What identifies the window among those of its key."""
    return key[_KEY + 1 :]


def hash_keys(keys: Sequence[Any]) -> Hashes:
    """The stable hashes that determine the key groups; windows share that of their key."""
    if tuple in set(map(type, keys)):
        keys = [key[_KEY] if is_window_key(key) else key for key in keys]
    return hash_values(keys)
