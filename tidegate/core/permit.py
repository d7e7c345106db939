"""The permission of a slot to act outside the job."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tidegate.core.errors import LeaseEnded


@dataclass(frozen=True, slots=True)
class Permit:
    """Checked right before an action that cannot be undone: a commit, abort, fencing or deletion.

    A slot with an expired lease may already have been replaced. Its successor completes its work.
    """

    is_valid: Callable[[], bool] = lambda: True
    check_driver: Callable[[bool], None] = lambda takes_over: None
    """Raises DirectoryTaken if another driver has taken over the job, and the action may harm it:
    it takes something over, or the slot is opening."""

    def require(self, *, takes_over: bool = False) -> None:
        """Raise LeaseEnded unless it is valid, DirectoryTaken if its driver was replaced.

        `takes_over` is for actions that end what was begun under the same name, such as fencing.
        """
        self.check_driver(takes_over)  # first: it may take long
        if not self.is_valid():
            raise LeaseEnded
