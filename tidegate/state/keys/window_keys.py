"""Keys of windows: the state of a window has a place of its own, in the key group of its key.

A backend numbers such a key like any other. It is a plain tuple, which begins with a mark that no
key of a user holds; what follows the key tells its windows apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from tidegate.state.keys.hash_columns import Hashes, hash_values

WindowKey = tuple[Any, ...]
"""(OF_WINDOW, key, *parts of the window); of a time window the parts are start and end."""


class OF_WINDOW:  # noqa: N801 - the class itself is the mark: it is pickled by name, compared by `is`
    """Begins the key of a window."""


_KEY: Final = 1


def window_key(key: Any, *parts: Any) -> WindowKey:
    """The key of the window that these parts tell from other windows of the key."""
    return OF_WINDOW, key, *parts


def is_window_key(key: Any) -> bool:
    return type(key) is tuple and len(key) > _KEY and key[0] is OF_WINDOW


def key_of_window(key: WindowKey) -> Any:
    return key[_KEY]


def parts_of(key: WindowKey) -> tuple[Any, ...]:
    """What tells the window from others of its key."""
    return key[_KEY + 1 :]


def hash_keys(keys: Sequence[Any]) -> Hashes:
    """The stable hash that decides about the key group of each key, whose windows share it."""
    if tuple in set(map(type, keys)):
        keys = [key[_KEY] if is_window_key(key) else key for key in keys]
    return hash_values(keys)
