"""Waits for the end of a job in another process."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from tidegate.core.errors import JobOutOfReach, OrderRefused

if TYPE_CHECKING:
    from tidegate.web.client import JobConnection

_LOOK_SECONDS = 0.1
_ENDS = ("FINISHED", "CANCELED", "FAILED")


def wait_for_end(connection: JobConnection) -> str:
    """The state that the job ended in; its driver may be gone by then."""
    while True:
        try:
            state = str(connection.get()["state"])
        except (JobOutOfReach, OrderRefused):
            record = connection.wait_for_record(lambda record: not record.is_running)
            if record is None:
                raise
            return str(record.state)
        if state in _ENDS:
            return state
        time.sleep(_LOOK_SECONDS)
