"""What becomes of a job when something happens to its driver, or to Spark."""

import os
import signal
import tempfile
import textwrap
from pathlib import Path

import psutil
import pytest

from tests.programs import wait_until
from tests.spark.scripts import PATIENCE, START, end, family_of, start_script

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
ENDLESS_BY_THE_API = """
import os
from tidegate import Configuration, StreamExecutionEnvironment
from tidegate.connectors.sequence import NumberSequenceSource
from tidegate.operators.functions import MapFunction

class Tell(MapFunction):
    told = False

    def map(self, value):
        if not self.told:
            self.told = True
            return f"slot {os.getpid()}"

env = StreamExecutionEnvironment.get_execution_environment({"tidegate.step.max-records": 50})
env.set_parallelism(2)
numbers = env.from_source(NumberSequenceSource(0, 10**15), None, "numbers")
numbers.rebalance().map(Tell()).filter(lambda line: line is not None).print()
env.execute()
"""


@pytest.fixture
def own_temporary():
    """A script that is killed cannot tidy up: its directory is not shared with other tests."""
    with tempfile.TemporaryDirectory(prefix="tg-") as directory:
        yield Path(directory)


@pytest.fixture
def start_endless(tmp_path, own_temporary):
    """Starts a driver with an endless job, as a process; both its slots have computed something."""
    started = []

    def start(text):
        script = tmp_path / "endless.py"
        script.write_text(text)
        process = start_script(script, "spark", own_temporary)
        started.append(process)
        process.slots = [int(process.stdout.readline().split()[-1]) for _ in range(2)]
        return process

    yield start
    for process in started:
        end(process)


def are_gone(processes):
    return all(not p.is_running() or p.status() == psutil.STATUS_ZOMBIE for p in processes)


def test_a_killed_driver_leaves_no_process_behind(start_endless):
    driver = start_endless(ENDLESS)
    family = family_of(driver)
    assert set(driver.slots) <= {process.pid for process in family}
    driver.kill()
    wait_until(lambda: are_gone(family))


@pytest.mark.parametrize("program", [ENDLESS, ENDLESS_BY_THE_API], ids=["async", "execute"])
def test_ctrl_c_ends_a_driver_and_leaves_nothing(start_endless, program, own_temporary):
    driver = start_endless(program)
    family = family_of(driver)
    assert list(own_temporary.glob("tidegate-*"))
    os.killpg(driver.pid, signal.SIGINT)
    _, err = driver.communicate(timeout=PATIENCE)
    assert driver.returncode != 0
    # Not always the last line: a worker of Spark's may be cut off in the middle of a traceback.
    assert "KeyboardInterrupt" in err.splitlines(), err
    # Java's own warnings go to the log of a session that Tidegate creates.
    assert program is ENDLESS or "incubator" not in err
    wait_until(lambda: are_gone(family))
    assert list(own_temporary.glob("tidegate-*")) == []


def test_the_death_of_sparks_jvm_fails_the_job(start_endless):
    driver = start_endless(ENDLESS)
    family = family_of(driver)
    (jvm,) = [process for process in family if "java" in process.name()]
    jvm.kill()
    _, err = driver.communicate(timeout=PATIENCE)
    assert driver.returncode != 0
    assert err.strip().splitlines()[-1].startswith("tidegate.errors."), err
    wait_until(lambda: are_gone(family))


def test_a_session_that_is_stopped_under_a_job_fails_it(tmp_path, own_temporary):
    script = tmp_path / "stops.py"
    stop = "__import__('pyspark').SparkContext.getOrCreate().stop()"
    script.write_text(ENDLESS.replace("print(pid)", stop))
    driver = start_script(script, "spark", own_temporary)
    try:
        _, err = driver.communicate(timeout=PATIENCE)
    finally:
        end(driver)
    assert err.strip().splitlines()[-1].startswith("tidegate.errors."), err
    assert list(own_temporary.glob("tidegate-*")) == []
