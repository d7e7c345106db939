"""The results of a campaign."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

from tidegate.core.fault_points import FaultPoint
from tidegate.verify.content import Content

_EXAMPLES = 3


@dataclass(frozen=True, slots=True)
class SinkDifference:
    """How the sink of a killed run differs from that of the undisturbed one."""

    lost: int
    duplicated: int
    examples: tuple[str, ...] = ()

    @classmethod
    def between(cls, expected: Content, found: Content) -> SinkDifference:
        lost, more = expected - found, found - expected
        return cls(lost.total(), more.total(), (*_some("lost", lost), *_some("duplicated", more)))

    def __add__(self, other: SinkDifference) -> SinkDifference:
        return SinkDifference(
            self.lost + other.lost,
            self.duplicated + other.duplicated,
            (*self.examples, *other.examples),
        )


NO_DIFFERENCE = SinkDifference(0, 0)


@dataclass(frozen=True, slots=True)
class PointVerdict:
    """The result of the kills at one point of the protocol."""

    point: FaultPoint
    kills: int
    difference: SinkDifference
    may_repeat: bool
    """Whether only at-least-once is required."""

    @property
    def holds(self) -> bool:
        difference = self.difference
        return difference.lost == 0 and (self.may_repeat or difference.duplicated == 0)


def _some(what: str, records: Content) -> list[str]:
    shown: list[Hashable] = list(records)[:_EXAMPLES]
    return [f"{what}: {record!r}" for record in shown]
