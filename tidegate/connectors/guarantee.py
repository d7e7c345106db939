"""How often a record arrives at the end, and what each end of a job says about it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class DeliveryGuarantee(Enum):
    """How often the effect of a record is seen outside, failures included."""

    NONE = "none"
    AT_LEAST_ONCE = "at-least-once"
    EXACTLY_ONCE = "exactly-once"

    @property
    def shown(self) -> str:
        return self.value.replace("-", " ")


@dataclass(frozen=True, slots=True)
class Delivery:
    """What a sink makes of a stream that is exactly-once up to it."""

    guarantee: DeliveryGuarantee
    why: str
    """The rest of a sentence that begins with the sink: "commits with the checkpoint"."""
    commits: bool = False
    """Whether what it has committed with a checkpoint comes twice if the job goes back further."""


@dataclass(frozen=True, slots=True)
class Replay:
    """Whether a source gives the same records again after a failure."""

    is_possible: bool
    why: str
    """The rest of a sentence that begins with the source: "goes back to its positions"."""
