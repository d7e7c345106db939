"""File systems that refuse what is written to them."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest


def _mount(*arguments: str) -> None:
    command = ["mount", *arguments]
    if os.geteuid() != 0 or subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("a file system cannot be mounted here: run the tests as root")


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of one megabyte."""
    disk = tmp_path / "disk"
    disk.mkdir()
    _mount("-t", "tmpfs", "-o", "size=1m", "tidegate", str(disk))
    yield disk
    subprocess.run(["umount", str(disk)], check=True)


def make_read_only(disk: Path) -> None:
    _mount("-o", "remount,ro", str(disk))


def make_writable(disk: Path) -> None:
    _mount("-o", "remount,rw", str(disk))
