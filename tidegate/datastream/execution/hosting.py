"""What the host of a program, such as the command line, decides for it."""

from __future__ import annotations

import atexit
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from tidegate.datastream.execution.executor import JobExecutor
from tidegate.datastream.execution.program import Program


@dataclass(frozen=True, slots=True, kw_only=True)
class Hosting:
    """Applies to every environment created while it is in force."""

    settings: Mapping[str, Any] = field(default_factory=dict)
    """They override those of the program."""
    defaults: Mapping[str, Any] = field(default_factory=dict)
    """Those of the program override them."""
    executor: JobExecutor | None = None
    """Runs the jobs instead of Spark."""
    programs: dict[int, Program] = field(default_factory=dict)
    """What each environment has built since it last ran a job."""


_in_force = [Hosting()]
"""The last one is in force."""


def hosting() -> Hosting:
    """The hosting in force in this process."""
    return _in_force[-1]


def building(environment: object, program: Program) -> None:
    """Remember what an environment builds, to warn if it never runs."""
    if len(_in_force) > 1:
        hosting().programs[id(environment)] = program
    elif _is_called_by_a_script():
        if not hosting().programs:
            atexit.register(_warn_of_forgotten_programs)
        hosting().programs[id(environment)] = program


def _is_called_by_a_script() -> bool:
    frame = sys._getframe(2)
    while frame.f_back is not None and frame.f_globals["__name__"].startswith("tidegate."):
        frame = frame.f_back
    return bool(frame.f_globals["__name__"] == "__main__")


def _warn_of_forgotten_programs() -> None:
    has_failed = hasattr(sys, "last_value")
    if not has_failed and any(not built.is_empty for built in hosting().programs.values()):
        print(
            "tidegate: the program ended without running its pipeline: call env.execute() at "
            "its end",
            file=sys.stderr,
        )


@contextmanager
def hosted(by: Hosting) -> Iterator[None]:
    """Put a hosting in force for the block."""
    _in_force.append(by)
    try:
        yield
    finally:
        _in_force.pop()
