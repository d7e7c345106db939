"""Schedules of the simulator; see `docs/proof.md`."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.effort import times

ROOT = Path(__file__).parents[2]
FIRST_SEED = int(os.environ.get("TIDEGATE_SEED", "0"))
"""Fresh ones are for `make prove`."""


def simulate(*arguments):
    """In a process of its own, where sets have the same order each time."""
    command = [sys.executable, "-m", "tests.sim", *map(str, arguments)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def test_every_schedule_goes_well():
    done = simulate("--first", FIRST_SEED, "--seeds", times(15))
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
def test_a_seed_gives_the_same_schedule_each_time():
    first, second = (simulate("--seed", 5, "--trace").stdout for _ in range(2))
    assert first == second
    assert "all well" in first
