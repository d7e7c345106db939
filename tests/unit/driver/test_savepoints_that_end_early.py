"""Savepoints whose job fails, restarts or ends before they are complete: told, without a trace."""

import threading
from pathlib import Path

import pytest

from tests.jobs import RESTARTS, fail_once, on_disk, raise_, summed, totals
from tests.programs import PATIENCE, read, wait_until
from tests.taps import Tap
from tests.unit.driver.conftest import RECORDS
from tidegate.core.errors import JobCanceled, NotNow, SavepointFailed, UserFunctionError
from tidegate.core.ids import SlotIndex
from tidegate.core.modes import SavepointFormat
from tidegate.protocol.job_status import JobStatus
from tidegate.stream.elements import BarrierKind

RARELY = {"execution.checkpointing.interval": "1 h"}


def files_in(directory):
    return [path for path in Path(directory).rglob("*") if path.is_file()]


@pytest.fixture(params=list(SavepointFormat), ids=lambda format: format.value)
def half_written(request, start, watch, tmp_path):
    """A job in whose savepoint one subtask waits while the other one has written its part."""
    tap = Tap(RECORDS)
    settings = on_disk(tmp_path / "checkpoints", **RESTARTS, **RARELY)
    job = start(summed(watch, read(tap)), settings=settings)
    tap.let(20)
    wait_until(lambda: watch.count("sums", "map") == 20)
    gate, arrived = threading.Event(), []

    def wait_in_the_second(number):
        arrived.append(number)
        if len(arrived) == 2:
            gate.wait(PATIENCE)

    watch.on("sums", "snapshot", wait_in_the_second)
    answer = job.order(BarrierKind.SAVEPOINT, tmp_path / "savepoints", request.param)
    wait_until(lambda: files_in(tmp_path / "savepoints"))
    yield job, tap, answer, gate
    gate.set()


def is_refused(answer, reason):
    with pytest.raises(SavepointFailed, match=f"the savepoint was not taken: .*{reason}"):
        answer.result(PATIENCE)


def test_a_job_that_is_cancelled_leaves_no_part_of_its_savepoint(half_written, tmp_path):
    job, _, answer, gate = half_written
    job.master.cancel()
    gate.set()
    is_refused(answer, "cancel")
    job.fails(JobCanceled)
    assert not list((tmp_path / "savepoints").iterdir())


def test_a_job_that_fails_continues_and_leaves_no_part_of_its_savepoint(half_written, tmp_path):
    job, tap, answer, gate = half_written
    job.cluster.kill(SlotIndex(0))
    is_refused(answer, "a region failed")
    gate.set()
    tap.open()
    job.result()
    assert dict(job.records("sums")) == totals(RECORDS)
    assert not list((tmp_path / "savepoints").iterdir())


def finished(job, watch, tap):
    tap.open()
    job.result()


def failed(job, watch, tap):
    watch.on("sums", "map", lambda _: raise_(ValueError("always")))
    tap.open()
    job.fails(UserFunctionError)


def canceled(job, watch, tap):
    job.cancel()


def restarting(job, watch, tap):
    fail_once(watch, "sums")
    tap.let(20)
    wait_until(lambda: job.status is JobStatus.RESTARTING)


@pytest.mark.parametrize("kind", [BarrierKind.SAVEPOINT, BarrierKind.STOP])
@pytest.mark.parametrize(
    ("becomes", "advice"),
    [
        (finished, "it is too late"),
        (failed, "it is too late"),
        (canceled, "it is too late"),
        (restarting, "ask again when it runs"),
    ],
)
def test_a_job_that_does_not_run_says_so(start, watch, tmp_path, becomes, advice, kind):
    patient = {"restart-strategy.fixed-delay.delay": "1 h"} if becomes is restarting else {}
    tap = Tap(RECORDS)
    settings = on_disk(tmp_path / "checkpoints", **{**RESTARTS, **RARELY, **patient})
    job = start(summed(watch, read(tap)), settings=settings)
    wait_until(lambda: job.status is JobStatus.RUNNING)
    becomes(job, watch, tap)
    with pytest.raises(NotNow) as refusal:
        job.order(kind, tmp_path / "savepoints").result(PATIENCE)
    name = becomes.__name__
    assert str(refusal.value) == f"no savepoint now: the job is {name}; {advice}"
    assert not (tmp_path / "savepoints").exists()
