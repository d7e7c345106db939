"""Order of the tests, whatever their folder, and which of them share a process."""

import os
import shutil
import tempfile

import pytest

_SLOWEST_LAST = ("slow", "spark", "cluster", "soak")


_home = tempfile.mkdtemp(prefix="tidegate-tests-")


def pytest_configure() -> None:
    """Jobs of tests are not written down among those of the user."""
    os.environ.setdefault("TIDEGATE_HOME", _home)


def pytest_unconfigure() -> None:
    shutil.rmtree(_home, ignore_errors=True)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run quick tests first: what they catch is known within a minute.

    With several workers (`-n 2`), those that start Spark or servers go to one of them.
    """
    items.sort(key=_slowness)
    for item in items:
        if _slowness(item) > 1 or "services" in item.path.parts:
            item.add_marker(pytest.mark.xdist_group("spark and services"))


def _slowness(item: pytest.Item) -> int:
    marked = [rank for rank, name in enumerate(_SLOWEST_LAST, 1) if item.get_closest_marker(name)]
    return max(marked, default=0)
