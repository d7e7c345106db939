"""The result of looking at one prerequisite."""

from dataclasses import dataclass
from enum import Enum


class Status(Enum):
    """How a prerequisite stands; only ``MISSING`` keeps Tidegate from running."""

    OK = "ok"
    WARNING = "warning"
    MISSING = "missing"


@dataclass(frozen=True, slots=True)
class Check:
    """One line of the report: what was looked at, what was found, what to do about it."""

    name: str
    status: Status
    found: str
    advice: str | None = None


def ok(name: str, found: str) -> Check:
    return Check(name, Status.OK, found)


def warning(name: str, found: str, advice: str) -> Check:
    return Check(name, Status.WARNING, found, advice)


def missing(name: str, found: str, advice: str) -> Check:
    return Check(name, Status.MISSING, found, advice)
