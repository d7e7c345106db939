"""Messages of schedules, pickled faster: otherwise that would take longer than all else."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

from tidegate.protocol.pickles import quickly_pickled


def hasten() -> None:
    """Prepare all classes that are defined by now."""
    usual: Any = dataclasses
    for cls in _below(object):
        if vars(cls).get("__getstate__") is usual._dataclass_getstate:
            quickly_pickled(cls)


def _below(cls: type) -> Iterator[Any]:
    for each in type.__subclasses__(cls):
        yield each
        yield from _below(each)
