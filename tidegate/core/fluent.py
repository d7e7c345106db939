"""What builders in PyFlink's style share."""

from __future__ import annotations

from typing import Any, Self


class FluentBuilder:
    """Remembers what is chosen, call by call: the arguments of what it builds, by name."""

    def __init__(self, **chosen: Any) -> None:
        self._chosen = chosen

    def _with(self, **chosen: Any) -> Self:
        self._chosen.update(chosen)
        return self
