"""What a program has set so far, checked at the moment it is set."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tidegate.core.config import OPTIONS, Settings, find_option


class JobConfiguration:
    """The configuration of one environment: typed values by key, the last one set wins."""

    def __init__(self) -> None:
        self._values: dict[str, Any] = {}

    def set(self, key: str, value: object) -> None:
        """Set a value under the present spelling of its key.

        Raises:
            ConfigError: the key is unknown, or the value makes no sense.
        """
        if key.startswith("spark."):
            self._values[key] = str(value)
        elif (option := find_option(key, value)) is not None:
            self._values[option.key] = option.parse(value, key)

    def update(self, values: Iterable[tuple[str, object]]) -> None:
        for key, value in values:
            self.set(key, value)

    def unset(self, *keys: str) -> None:
        for key in keys:
            self._values.pop(key, None)

    def get(self, key: str) -> Any:
        """The value that is in force: the one set, or the default."""
        return self._values.get(key, OPTIONS[key].default)

    def get_spark(self, key: str) -> str | None:
        """A setting of Spark's own, if it was set."""
        value: str | None = self._values.get(key)
        return value

    def is_set(self, key: str) -> bool:
        return key in self._values

    def settings(self) -> Settings:
        """All settings as one value."""
        return Settings.of(self._values)
