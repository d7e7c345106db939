"""Schedules of the simulator; see `docs/proof.md`."""

import os
import subprocess
import sys
import threading
import time
from itertools import count
from pathlib import Path

import pytest

from tests.effort import times
from tests.sim.__main__ import outcome_of, shrunk
from tests.sim.bugs import BUGS
from tests.sim.plans import ANY, RAREST, RARITIES, Plan, Wish

ROOT = Path(__file__).parents[2]
FIRST_SEED = int(os.environ.get("TIDEGATE_SEED", "0"))
"""Fresh seeds are for `make prove`."""
AIMED = Wish(aims=0.85)


def simulate(*arguments, hash_seed="0"):
    """Run in a separate process, where sets have a fixed order."""
    command = [sys.executable, "-m", "tests.sim", *map(str, arguments)]
    variables = {**os.environ, "PYTHONHASHSEED": hash_seed}
    return subprocess.run(
        command, cwd=ROOT, env=variables, capture_output=True, text=True, check=False
    )


def test_every_schedule_goes_well():
    done = simulate("--first", FIRST_SEED, "--seeds", times(8))
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("seed", "wish"),
    [
        (158, Wish(traits={"sink": "postgres"})),  # streams end while the others are idle
        (158, Wish(traits={"sink": "kafka"})),  # a step starts late, after its job is canceled
        (20567, ANY),  # a producer gets more to send before it knows what has arrived
        (20096, ANY),  # a prepared transaction times out before its checkpoint is published
        (40972, ANY),  # two drivers ask for different steps under the same number
        (41734, ANY),  # a slot closes for as long as it may when its job has ended
        (41814, ANY),  # a rival starts while the checkpoints of an ended job are removed
        (70117, ANY),  # a checkpoint is aborted before an earlier one is published
        (40592, ANY),  # many processes wait for servers at the same time
        (51214, ANY),  # a directory is claimed after the job has ended and removed it
        (51318, ANY),  # a driver waits for its slots when another one has run the job
        (60633, ANY),  # a job is canceled before its first checkpoint while a slot is out of reach
        (70004, ANY),  # the owner of a job without checkpoints cannot be read when a rival starts
        (70642, ANY),  # a slot dies while it writes, and others sleep for long
        (771886, ANY),  # a driver dies when it has drained its job, and another one resumes it
        (116, RARITIES[4]),  # several drivers need quick answers of the storage
        ("p3", RAREST[0]),  # a process that was never ready is replaced
        (30064, AIMED),  # a checkpoint cannot be read when the job is rescaled
        (30283, AIMED),  # messages arrive between a rescaled job and its successor
        (30356, AIMED),  # the job ends while a rival starts
        (30632, AIMED),  # a slot sleeps between the last record and the end of its stream
    ],
)
def test_a_schedule_that_once_went_wrong_goes_well(seed, wish):
    assert outcome_of(Plan.draw(seed, wish))[0] is None


def test_threads_outside_of_the_world_have_real_time():
    """Those of a Spark session, for instance, that other tests of this process have used."""
    slept, is_over = [], threading.Event()

    def sleep():
        while not is_over.is_set():
            begun = time.perf_counter()
            time.sleep(0.001)
            slept.append(time.perf_counter() - begun)

    thread = threading.Thread(target=sleep)
    thread.start()
    wrong, _ = outcome_of(Plan.draw(5))
    is_over.set()
    thread.join()
    assert wrong is None
    assert min(slept) >= 0.001


@pytest.mark.slow
def test_a_seed_gives_the_same_schedule_whatever_the_order_of_sets():
    first, second = (simulate("--seed", 5, "--trace", hash_seed=each).stdout for each in "12")
    assert first == second
    assert "all well" in first


@pytest.mark.slow
def test_a_schedule_that_goes_wrong_is_shrunk_to_the_faults_that_it_takes():
    bug = BUGS["a repeated step carries no barrier"]
    with bug.planted():
        plans = (Plan.draw(number, bug.wish) for number in count())
        wrong = next(plan for plan in plans if len(plan.faults) > 1 and outcome_of(plan)[0])
        small = shrunk(wrong)
        assert outcome_of(small)[0]
    assert len(small.faults) < len(wrong.faults)
