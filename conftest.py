"""Order of the tests, whatever their folder, and what all of them share."""

import importlib
import os
import shutil
import tempfile
from itertools import groupby
from pathlib import Path

import pytest

from scripts import class_archive
from services.__main__ import HOME
from tests.effort import EFFORT

_SHORT_LIVED = (
    "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC "
    f"-XX:SharedArchiveFile={class_archive.ARCHIVE} {class_archive.SILENT}"
)
_SLOWEST_LAST = ("slow", "spark", "cluster", "soak")


def pytest_configure(config: pytest.Config) -> None:
    """Jobs of tests are not written down among those of the user; JVMs live for a short time.

    No classes are stored for the JVMs of the user, either.
    """
    if not _is_worker(config):
        os.environ["TIDEGATE_STORE_CLASSES"] = "false"
        os.environ["TIDEGATE_HOME"] = tempfile.mkdtemp(prefix="tidegate-tests-")
        os.environ.setdefault("JAVA_TOOL_OPTIONS", _SHORT_LIVED)


def pytest_unconfigure(config: pytest.Config) -> None:
    """Servers serve all workers, so they are stopped when the last of these has ended."""
    if _is_worker(config):
        return
    home = Path(os.environ.pop("TIDEGATE_HOME"))
    for file in home.glob("started/*"):
        importlib.import_module(f"services.{file.name}").stop(HOME / file.name)
    shutil.rmtree(home, ignore_errors=True)


def _is_worker(config: pytest.Config) -> bool:
    return hasattr(config, "workerinput")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Begin with the files that take longest: workers take whole files, small ones fill gaps."""
    if EFFORT <= 1:
        config.hook.pytest_deselected(items=[item for item in items if _is_proof(item)])
        items[:] = [item for item in items if not _is_proof(item)]
    files = [list(group) for _, group in groupby(items, key=lambda item: item.path)]
    files.sort(key=lambda file: -max(map(_slowness, file)))
    items[:] = [item for file in files for item in file]


def _is_proof(item: pytest.Item) -> bool:
    return item.get_closest_marker("prove") is not None


def _slowness(item: pytest.Item) -> int:
    marked = [rank for rank, name in enumerate(_SLOWEST_LAST, 1) if item.get_closest_marker(name)]
    return max(marked, default=0)
