"""The result of checking one prerequisite."""

from dataclasses import dataclass
from enum import Enum


class Status(Enum):
    """The status of a prerequisite; only ``MISSING`` prevents Tidegate from running."""

    OK = "ok"
    WARNING = "warning"
    MISSING = "missing"


@dataclass(frozen=True, slots=True)
class Check:
    """One line of the report: what was checked, what was found, and advice."""

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
