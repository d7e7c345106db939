"""How far a job is behind, estimated from two observations. Pure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """The progress of a job at one moment."""

    at: float
    """Seconds of a monotonic clock."""
    read: int
    """Records read by its sources."""
    behind: int
    """Records left to read: to the end, or to the position before a failure."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CatchingUp:
    """The progress between two observations."""

    behind: int
    rate: float
    """Records read per second."""
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
