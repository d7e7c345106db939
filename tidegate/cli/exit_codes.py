"""Exit codes of commands, for scripts."""

from __future__ import annotations

from tidegate.core.errors import (
    ExternalError,
    InternalError,
    JobOutOfReach,
    NotNow,
    OrderRefused,
    SavepointFailed,
    TidegateError,
    UnknownJob,
    UserError,
)

USER_ERROR = 1
USAGE = 2

_CODES: tuple[tuple[type[TidegateError], int], ...] = (
    (UnknownJob, 3),
    (JobOutOfReach, 4),
    (OrderRefused, 5),
    (NotNow, 5),
    (SavepointFailed, 5),
    (UserError, USER_ERROR),
    (ExternalError, 6),
    (InternalError, 7),
)
"""The first match counts. 0 is success, 2 an argument that typer refuses."""


def exit_code(error: TidegateError) -> int:
    return next((code for kind, code in _CODES if isinstance(error, kind)), USER_ERROR)
