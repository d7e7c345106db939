"""Records on which user code always fails, which can be recognized and skipped."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

from tidegate.core.ids import OperatorId


class PoisonRecord(NamedTuple):
    """A record and the operator that fails on it, recognizable after a restart."""

    operator_id: OperatorId
    digest: str
    """Computed from the content: equal records have the same digest."""
    position: str | None = None
    """Where its source found it, if the source failed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetter:
    """A skipped record, for inspection."""

    at: float
    """Seconds since the epoch."""
    operator: str
    uid: str | None
    subtask: int
    position: str | None
    """How far its source had read."""
    record: str
    raw: bytes
    raw_format: str
    """pickle, bytes or repr."""
    error: str
    traceback: str


@dataclass(frozen=True, slots=True)
class PoisonOrders:
    """Which records operators skip if they fail on them."""

    skips: frozenset[PoisonRecord] = frozenset()
    skips_at_once: bool = False
    """Skip every record at its first failure."""

    def of(self, operator_id: OperatorId) -> PoisonOrders:
        own = frozenset(record for record in self.skips if record.operator_id == operator_id)
        return replace(self, skips=own)

    @property
    def may_skip(self) -> bool:
        return self.skips_at_once or bool(self.skips)

    def is_skipped(self, record: PoisonRecord) -> bool:
        return self.skips_at_once or record in self.skips
