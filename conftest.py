"""Order of the tests, whatever their folder, and which of them may run beside others."""

import os
import shutil
import tempfile

import pytest

_SLOWEST_LAST = ("slow", "spark", "cluster", "soak")
_SLOW = 1
"""The rank of tests that are slow, but start nothing."""


_home = tempfile.mkdtemp(prefix="tidegate-tests-")


def pytest_configure() -> None:
    """Jobs of tests are not written down among those of the user."""
    os.environ.setdefault("TIDEGATE_HOME", _home)


def pytest_unconfigure() -> None:
    shutil.rmtree(_home, ignore_errors=True)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run quick tests first: what they catch is known within a minute."""
    items.sort(key=_slowness)
    for item in items:
        if _slowness(item) > _SLOW or item.nodeid.startswith("tests/services/"):
            item.add_marker("alone")


def _slowness(item: pytest.Item) -> int:
    marked = [rank for rank, name in enumerate(_SLOWEST_LAST, 1) if item.get_closest_marker(name)]
    return max(marked, default=0)
