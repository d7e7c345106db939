"""Versions that driver and slots must share, because they exchange binary data."""

from __future__ import annotations

import platform
from collections.abc import Mapping

import pyarrow as pa

import tidegate


def versions() -> dict[str, str]:
    """The versions of this process."""
    major, minor, _ = platform.python_version_tuple()
    return {
        "Python": f"{major}.{minor}",
        "tidegate": tidegate.__version__,
        "pyarrow": pa.__version__,
    }


def mismatch(theirs: Mapping[str, str]) -> str | None:
    """What differs between a slot and this process, as a sentence; None if nothing does."""
    ours = versions()
    different = [name for name in ours if theirs.get(name) != ours[name]]
    if not different:
        return None
    found = ", ".join(f"{n} {theirs.get(n, 'missing')} instead of {ours[n]}" for n in different)
    return (
        f"it runs {found}; install the driver's versions on all executors, or ship the driver's "
        "environment with spark.archives"
    )
