"""Bugs that the simulator has to find; see `docs/proof.md`."""

import math
from statistics import median

import pytest

from tests.effort import seed
from tests.sim.bugs import BUGS, find


def test_there_are_many():
    assert len(BUGS) >= 50


@pytest.mark.slow
def test_a_bug_that_is_found_quickly_is_found():
    assert find(BUGS["a step of another attempt is not stale"], 1, seed()) < [math.inf]


@pytest.mark.prove
@pytest.mark.parametrize("name", sorted(BUGS))
def test_a_planted_bug_is_found(name):
    taken = find(BUGS[name], 3, seed())
    print(f"{name}: {median(taken)} schedules, {taken}")
    assert median(taken) < math.inf
