"""The common base of builders in PyFlink's style."""

from __future__ import annotations

from typing import Any, Self


class FluentBuilder:
    """Collects the arguments of what it builds, by name, one call at a time."""

    def __init__(self, **chosen: Any) -> None:
        self._chosen = chosen

    def _with(self, **chosen: Any) -> Self:
        self._chosen.update(chosen)
        return self
