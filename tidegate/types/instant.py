"""`Instant`: a point on the time line to the nanosecond, as in PyFlink."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Instant"]


@dataclass(frozen=True, slots=True, repr=False)
class Instant:
    """Seconds since 1970-01-01T00:00:00Z, and nanoseconds within that second."""

    seconds: int
    nanos: int

    @staticmethod
    def of_epoch_milli(epoch_milli: int) -> Instant:
        """The instant this many milliseconds after the epoch."""
        seconds, millis = divmod(epoch_milli, 1000)
        return Instant(seconds, millis * 1_000_000)

    def to_epoch_milli(self) -> int:
        """Milliseconds since the epoch."""
        return self.seconds * 1000 + self.nanos // 1_000_000

    def __repr__(self) -> str:
        return f"Instant<{self.seconds}, {self.nanos}>"
