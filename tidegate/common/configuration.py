"""`Configuration`: keys and values before a job validates them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from datetime import timedelta
from enum import Enum
from typing import Any, Self, TypeVar

from tidegate.common.config_options import ConfigOption
from tidegate.core.config import OPTIONS
from tidegate.core.durations import format_duration
from tidegate.core.errors import ConfigError
from tidegate.core.options import BOOLEAN

T = TypeVar("T")


class Configuration:
    """Settings by key, for `StreamExecutionEnvironment.get_execution_environment`.

    The environment, not this class, refuses unknown keys and invalid values. Keys are Flink's;
    values may be typed (`timedelta`, `int`, enums) or text as in Flink's configuration files.
    """

    def __init__(self, other: Configuration | Mapping[str, Any] | None = None) -> None:
        self._values: dict[str, Any] = {}
        if isinstance(other, Configuration):
            self._values.update(other._values)
        elif other is not None:
            self._values.update(other)

    @classmethod
    def from_dict(cls, map: Mapping[str, Any]) -> Configuration:
        """A configuration with the values of a dictionary."""
        return cls(map)

    @staticmethod
    def parse_list_value(value: str) -> list[str]:
        """The parts of text like "a;b"."""
        return [part.strip() for part in value.split(";") if part.strip()] if value else []

    def set(self, key: str | ConfigOption[Any], value: Any) -> Self:
        """Set the value of a key."""
        self._values[key.key if isinstance(key, ConfigOption) else key] = value
        return self

    def get(self, key: str | ConfigOption[Any], default: Any = None) -> Any:
        """The value as set; otherwise the given default, the option's, or that of the setting."""
        if isinstance(key, ConfigOption):
            if key.key not in self._values:
                return key.default if default is None else default
            return key.kind.parse(self._values[key.key])
        known = OPTIONS.get(key)
        fallback = known.default if known is not None and default is None else default
        return self._values.get(key, fallback)

    def set_string(self, key: str, value: str) -> Self:
        """Set a key to text."""
        return self.set(key, value)

    def get_string(self, key: str, default_value: str | None = None) -> str | None:
        """The value of a key as text."""
        value = self._values.get(key)
        return default_value if value is None else _as_text(value)

    def set_integer(self, key: str, value: int) -> Self:
        """Set a key to an integer."""
        return self.set(key, value)

    def get_integer(self, key: str, default_value: int) -> int:
        """The value of a key as an integer."""
        return self._converted(key, default_value, int, "a whole number")

    def set_float(self, key: str, value: float) -> Self:
        """Set a key to a float."""
        return self.set(key, float(value))

    def get_float(self, key: str, default_value: float) -> float:
        """The value of a key as a float."""
        return self._converted(key, default_value, float, "a number")

    def set_boolean(self, key: str, value: bool) -> Self:
        """Set a key to a boolean."""
        return self.set(key, value)

    def get_boolean(self, key: str, default_value: bool) -> bool:
        """The value of a key as a boolean."""
        return self._converted(key, default_value, BOOLEAN.parse, "true or false")

    def set_bytearray(self, key: str, value: bytearray) -> Self:
        """Set a key to bytes."""
        return self.set(key, value)

    def get_bytearray(self, key: str, default_value: bytearray) -> bytearray:
        """The value of a key as bytes."""
        return self._converted(key, default_value, bytearray, "bytes")

    def key_set(self) -> AbstractSet[str]:
        """All keys that have a value."""
        return frozenset(self._values)

    def contains_key(self, key: str) -> bool:
        """Whether a value is set for this key."""
        return key in self._values

    def add_all(self, other: Configuration, prefix: str | None = None) -> Self:
        """Add all values of another configuration."""
        self._values.update({f"{prefix or ''}{key}": v for key, v in other._values.items()})
        return self

    def add_all_to_dict(self, target_dict: dict[str, Any]) -> None:
        """Copy all values into a dictionary."""
        target_dict.update(self.to_dict())

    def to_dict(self) -> dict[str, str]:
        """All values as the text of a configuration file."""
        return {key: _as_text(value) for key, value in self._values.items()}

    def remove_config(self, key: str) -> bool:
        """Remove a value; returns whether there was one."""
        return self._values.pop(key, None) is not None

    def items(self) -> list[tuple[str, Any]]:
        """Keys and values as they were set, in order."""
        return list(self._values.items())

    def _converted(self, key: str, default: T, convert: Callable[[Any], T], expected: str) -> T:
        value = self._values.get(key)
        if value is None:
            return default
        try:
            return convert(value)
        except (TypeError, ValueError):
            raise ConfigError(key, value, f"this is not {expected}") from None

    def __deepcopy__(self, memo: dict[int, Any]) -> Configuration:
        return Configuration(self)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Configuration) and other._values == self._values

    def __hash__(self) -> int:
        return hash(frozenset(self.to_dict().items()))

    def __repr__(self) -> str:
        return repr(self.to_dict())


def _as_text(value: Any) -> str:
    match value:
        case bool():
            return str(value).lower()
        case timedelta():
            return format_duration(value)
        case Enum():
            return str(value.value)
        case Mapping():
            return ",".join(f"{key}:{entry}" for key, entry in value.items())
        case list() | tuple():
            return ";".join(map(str, value))
        case _:
            return str(value)
