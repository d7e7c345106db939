"""Delivery guarantees, and what sources and sinks contribute to them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class DeliveryGuarantee(Enum):
    """How often the effect of a record is visible outside, even after failures."""

    NONE = "none"
    AT_LEAST_ONCE = "at-least-once"
    EXACTLY_ONCE = "exactly-once"

    @property
    def shown(self) -> str:
        return self.value.replace("-", " ")


@dataclass(frozen=True, slots=True)
class Delivery:
    """The guarantee of a sink, given an exactly-once stream."""

    guarantee: DeliveryGuarantee
    why: str
    """The rest of a sentence that begins with the sink: "commits with the checkpoint"."""
    commits: bool = False
    """Whether committed results are repeated if the job resumes from an earlier checkpoint."""


@dataclass(frozen=True, slots=True)
class Replay:
    """Whether a source returns the same records again after a failure."""

    is_possible: bool
    why: str
    """The rest of a sentence that begins with the source: "replays from its positions"."""
