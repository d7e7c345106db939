"""How much the tests try: `make check` a little, `make prove` a lot, and from a seed of its own.

Whatever grows with the effort (examples, kills, steps) is given for an effort of one, which is
that of `make test`.
"""

import os
import random
from collections.abc import Iterable
from typing import Any

from hypothesis import HealthCheck, settings

EFFORT = float(os.environ.get("TIDEGATE_EFFORT", "1"))
_SPEED = (HealthCheck.too_slow, HealthCheck.data_too_large)

# No property depends on being fast.
settings.register_profile("tests", deadline=None, suppress_health_check=_SPEED)
settings.load_profile("tests")


def times(count: int) -> int:
    return max(1, round(count * EFFORT))


def examples(count: int = 40, *, suppress: Iterable[HealthCheck] = (), **more: Any) -> settings:
    """The settings of a property that draws so many examples."""
    return settings(max_examples=times(count), suppress_health_check={*_SPEED, *suppress}, **more)


def some(*variants: str) -> tuple[str, ...]:
    """All variants of a test, the first one alone where the effort is little."""
    return variants if EFFORT >= 1 else variants[:1]


def seed() -> int:
    """That of this run, else a fresh one; printed, so that a failure can be repeated."""
    chosen = os.environ.get("TIDEGATE_SEED") or random.randrange(10**6)
    print(f"TIDEGATE_SEED={chosen}")
    return int(chosen)
