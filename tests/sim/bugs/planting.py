"""Plants a bug: temporarily replaces part of the protocol."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any
from unittest.mock import patch

from tests.sim.plans import ANY, Wish

Change = Callable[[Any], Any]
"""Maps the original to its replacement."""


@dataclass(frozen=True)
class Bug:
    name: str
    wish: Wish
    """The plans with which it is searched for."""
    changes: tuple[tuple[Any, str, Change], ...]

    @contextmanager
    def planted(self) -> Iterator[None]:
        with ExitStack() as stack:
            for place, name, change in self.changes:
                found = getattr(place, name)
                raw = place.__dict__.get(name) if isinstance(place, type) else None
                changed = change(found.fget if isinstance(found, property) else found)
                if isinstance(raw, property):
                    changed = property(changed)
                elif isinstance(raw, classmethod | staticmethod):
                    changed = staticmethod(changed)
                stack.enter_context(patch.object(place, name, changed))
            yield

    def plant(self) -> None:
        """Plant it permanently."""
        context = self.planted()
        _planted.append(context)  # a generator that nobody refers to is closed
        context.__enter__()


BUGS: dict[str, Bug] = {}
_planted: list[AbstractContextManager[None]] = []
_wish = [ANY]


def section(*kinds: str, moments: tuple[str, ...] = ANY.moments, **traits: Any) -> None:
    """The bugs that follow are searched for with these faults, at these moments."""
    _wish[0] = Wish(kinds or ANY.kinds, moments, traits)


def bug(name: str, *changes: tuple[Any, str, Change], **traits: Any) -> None:
    """Register a bug that can do harm in programs with these traits, among others."""
    assert name not in BUGS, name
    wish = replace(_wish[0], traits={**_wish[0].traits, **traits})
    BUGS[name] = Bug(name, wish, changes)


def instead(answer: Any) -> Change:
    """A replacement that always returns this."""
    return lambda original: lambda *arguments, **named: answer
