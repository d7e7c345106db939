"""The right of a slot to change the world outside."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tidegate.core.errors import LeaseEnded


@dataclass(frozen=True, slots=True)
class Permit:
    """Asked right before what cannot be undone: a commit, an abort, a fence, a deletion.

    A slot that has not heard from its driver for its lease may have been replaced already. What
    it leaves undone its successor does.
    """

    is_valid: Callable[[], bool] = lambda: True

    def require(self) -> None:
        """Raise LeaseEnded unless it is valid."""
        if not self.is_valid():
            raise LeaseEnded
