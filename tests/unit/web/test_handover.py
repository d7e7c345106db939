"""A job that is rescaled, seen while no master has it: it restarts, and says so."""

import threading
from contextlib import contextmanager

import pytest

from tests.jobs import Sums, on_disk, raise_
from tests.programs import PATIENCE, wait_until
from tidegate.core.errors import JobCanceled, TidegateError, UserError
from tidegate.protocol.job_status import JobStatus


class TellsWhenPacked(Sums):
    """Is packed whenever a master of its job is made."""

    def __getstate__(self):
        self.did("packed")
        return self.__dict__


@pytest.fixture
def rescaled(serve, tmp_path):
    """A job with some state, about to be rescaled."""
    served = serve(on_disk(tmp_path / "checkpoints"), function=TellsWhenPacked)
    served.let(20)
    return served


@contextmanager
def held(served):
    """The handover stops in the middle until the block has ended."""
    begun, may_go_on = threading.Event(), threading.Event()

    def hold(_):
        begun.set()
        assert may_go_on.wait(PATIENCE)

    served.watch.on("sums", "packed", hold)
    order = served.job.order_rescaling(3)
    try:
        assert begun.wait(PATIENCE)
        yield order
    finally:
        may_go_on.set()


def parallelisms(served):
    return [vertex["parallelism"] for vertex in served.of_job().document["vertices"]]


def test_a_job_restarts_while_it_is_handed_over(rescaled):
    with held(rescaled):
        assert rescaled.ask("/jobs").document == {
            "jobs": [{"id": rescaled.id, "status": "RESTARTING"}]
        }
        details = rescaled.of_job().document
        assert (details["state"], details["end-time"]) == ("RESTARTING", -1)
        assert rescaled.ask("/overview").document["jobs-running"] == 1
        assert f'job_id="{rescaled.id}",job_name="sums of numbers",state="RESTARTING"' in (
            rescaled.ask("/metrics").document
        )
    wait_until(lambda: rescaled.job.status() is JobStatus.RUNNING)
    assert parallelisms(rescaled) == [3, 3]
    (change,) = rescaled.of_job("/rescales/history").document
    changed = [
        (each["preRescaleParallelism"], each["postRescaleParallelism"])
        for each in change["vertices"].values()
    ]
    assert (changed, change["terminalState"]) == ([(2, 3), (2, 3)], "COMPLETED")
    uuid = change["rescaleUuid"]
    assert rescaled.of_job(f"/rescales/details/{uuid}").document == change
    assert rescaled.of_job(f"/rescales/details/{32 * '0'}").status == 404
    overview = rescaled.of_job("/rescales/overview").document
    assert overview["latest"]["completed"] == change
    entered = rescaled.of_job().document["timestamps"]
    assert entered["CREATED"] < entered["RESTARTING"] <= entered["RUNNING"]
    assert entered["FINISHED"] == 0
    rescaled.let(60)
    rescaled.job.result(PATIENCE)
    assert rescaled.job.status() is JobStatus.FINISHED


@pytest.mark.parametrize(
    ("path", "method", "what"),
    [
        ("/savepoints", "POST", "savepoint"),
        ("/stop", "POST", "savepoint"),
        ("/checkpoints", "POST", "checkpoint"),
        ("/rescaling?parallelism=2", "PATCH", "rescaling"),
    ],
)
def test_orders_are_asked_to_come_again(rescaled, path, method, what):
    with held(rescaled):
        answer = rescaled.of_job(path, method=method)
        assert answer.status == 409
        assert answer.error == f"no {what} now: the job is restarting; ask again when it runs"


def test_the_second_of_two_rescalings_is_refused_with_the_reason(rescaled):
    with held(rescaled) as first:
        second = rescaled.job.order_rescaling(1)
        assert first.answer.result(PATIENCE)
        with pytest.raises(TidegateError, match="the job is restarting; ask again"):
            second.answer.result(PATIENCE)
    wait_until(lambda: rescaled.job.status() is JobStatus.RUNNING)
    assert parallelisms(rescaled) == [3, 3]


def test_a_rescaling_that_waits_for_another_is_refused_with_the_reason(rescaled):
    taken = threading.Event()
    rescaled.watch.on("sums", "snapshot", lambda _: taken.wait(PATIENCE))
    first, second = rescaled.job.order_rescaling(3), rescaled.job.order_rescaling(1)
    assert first.begun.result(PATIENCE)
    taken.set()
    assert first.answer.result(PATIENCE)
    with pytest.raises(TidegateError, match="the job restarts"):
        second.answer.result(PATIENCE)
    wait_until(lambda: rescaled.job.status() is JobStatus.RUNNING)
    assert parallelisms(rescaled) == [3, 3]


def test_a_cancellation_meanwhile_is_heard(rescaled):
    with held(rescaled):
        assert rescaled.of_job("?mode=cancel", method="PATCH").status == 202
    with pytest.raises(JobCanceled):
        rescaled.job.result(PATIENCE)
    assert rescaled.of_job().document["state"] == "CANCELED"


def test_a_job_that_nobody_can_take_over_has_failed(rescaled):
    rescaled.watch.on("sums", "packed", lambda _: raise_(UserError("cannot travel")))
    rescaled.job.order_rescaling(3)
    with pytest.raises(TidegateError, match="cannot travel"):
        rescaled.job.result(PATIENCE)
    details = rescaled.of_job().document
    assert details["state"] == "FAILED"
    assert details["end-time"] > 0
    assert "cannot travel" in rescaled.of_job("/exceptions").document["root-exception"]
