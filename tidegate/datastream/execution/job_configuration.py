"""The current settings of a program, checked when they are set."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Any

from tidegate.core.config import OPTIONS, Settings, find_option

_log = logging.getLogger(__name__)


class JobConfiguration:
    """The configuration of one environment: typed values by key; the last one set counts.

    Settings fixed by the host override those of the program.
    """

    def __init__(
        self,
        defaults: Mapping[str, object] | None = None,
        fixed: Mapping[str, object] | None = None,
    ) -> None:
        self._values: dict[str, Any] = {}
        self._fixed: frozenset[str] = frozenset()
        self.update((defaults or {}).items())
        self.update((fixed or {}).items())
        self._fixed = frozenset(_present_key(key) for key in fixed or {})

    def set(self, key: str, value: object) -> None:
        """Set a value under the current spelling of its key.

        Raises:
            ConfigError: the key is unknown, or the value is invalid.
        """
        if key.startswith("spark."):
            found, parsed = key, str(value)
        elif (option := find_option(key, value)) is not None:
            found, parsed = option.key, option.parse(value, key)
        else:
            return
        if found in self._fixed:
            _log.debug("%s = %s is ignored: the host has set it", key, value)
        else:
            self._values[found] = parsed

    def update(self, values: Iterable[tuple[str, object]]) -> None:
        for key, value in values:
            self.set(key, value)

    def unset(self, *keys: str) -> None:
        for key in keys:
            if key not in self._fixed:
                self._values.pop(key, None)

    def get(self, key: str) -> Any:
        """The effective value: the one that was set, or the default."""
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


def _present_key(key: str) -> str:
    option = None if key.startswith("spark.") else find_option(key, None)
    return key if option is None else option.key
