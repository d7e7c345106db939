"""Python's cyclic garbage collector, kept from work that it cannot help with."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def collector_paused() -> Iterator[None]:
    """Without cyclic garbage collection: it runs every 700 objects, and costs more than they do."""
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
