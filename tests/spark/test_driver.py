"""What becomes of a job when something happens to its driver, or to Spark."""

import os
import signal
import textwrap

import psutil
import pytest

from tests.programs import wait_until
from tests.spark.scripts import START, end, family_of, start_script

pytestmark = [pytest.mark.spark, pytest.mark.slow]

ENDLESS = START + textwrap.dedent(
    """
    from tidegate.connectors.sequence import NumberSequenceSource

    numbers = read(NumberSequenceSource(0, 10**15))
    stream = mapped(lambda number: (number, os.getpid()), Upstream(numbers, Rebalance()))
    job = graph_of(collected(stream), parallelism=2)
    handle = start(job, {"tidegate.step.max-records": 50})
    pids = set()
    for number, pid in handle.collected("results", None):
        if pid not in pids:
            pids.add(pid)
            print(pid)
    """
)


@pytest.fixture
def endless(tmp_path, temporary):
    """A driver with an endless job, as a process, once both its slots have computed something."""
    script = tmp_path / "endless.py"
    script.write_text(ENDLESS)
    process = start_script(script, "spark", temporary)
    try:
        process.slots = [int(process.stdout.readline()) for _ in range(2)]
        yield process
    finally:
        end(process)


def are_gone(processes):
    return all(not p.is_running() or p.status() == psutil.STATUS_ZOMBIE for p in processes)


def test_a_killed_driver_leaves_no_process_behind(endless):
    family = family_of(endless)
    assert set(endless.slots) <= {process.pid for process in family}
    endless.kill()
    wait_until(lambda: are_gone(family), 30)


def test_ctrl_c_ends_a_driver_and_leaves_nothing(endless, temporary):
    family = family_of(endless)
    assert list(temporary.glob("tidegate-*"))
    os.killpg(endless.pid, signal.SIGINT)
    _, err = endless.communicate(timeout=60)
    assert endless.returncode != 0
    assert "KeyboardInterrupt" in err
    wait_until(lambda: are_gone(family), 30)
    assert list(temporary.glob("tidegate-*")) == []


def test_the_death_of_sparks_jvm_fails_the_job(endless):
    family = family_of(endless)
    (jvm,) = [process for process in family if "java" in process.name()]
    jvm.kill()
    _, err = endless.communicate(timeout=60)
    assert endless.returncode != 0
    last = err.strip().splitlines()[-1]
    assert last.startswith("tidegate.core.errors."), err
    wait_until(lambda: are_gone(family), 30)
