"""How far a job is behind, and for how long, estimated from two observations. Pure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """What a job had done at a moment."""

    at: float
    """In seconds, by any clock that does not jump."""
    read: int
    """Records read by its sources."""
    behind: int
    """Records that they have still to read: to the end, or to where they had been."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CatchingUp:
    """The time between two looks."""

    behind: int
    rate: float
    """Records read a second."""
    seconds_left: float | None
    """Seconds until the job has caught up; None: it is not catching up."""


def compared(before: Look, now: Look) -> CatchingUp:
    seconds = max(now.at - before.at, 1e-6)
    less = (before.behind - now.behind) / seconds
    left = None
    if now.behind == 0:
        left = 0.0
    elif less > 0:
        left = now.behind / less
    return CatchingUp(
        behind=now.behind,
        rate=max(0.0, (now.read - before.read) / seconds),
        seconds_left=left,
    )
