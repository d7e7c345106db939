"""What is kept of the past of a job."""

import pytest

from tidegate.core.errors import InternalError, SlotLost, UserFunctionError
from tidegate.core.ids import PipelineId
from tidegate.driver.chronicle import Chronicle
from tidegate.protocol.job_status import JobStatus


def test_states_are_kept_with_the_time_they_were_entered_last():
    chronicle = Chronicle(now=1.0)
    for second, status in enumerate((JobStatus.RUNNING, JobStatus.RUNNING, JobStatus.RESTARTING)):
        chronicle.is_now(status, 2.0 + second)
    assert chronicle.entered() == {
        JobStatus.CREATED: 1.0,
        JobStatus.RUNNING: 2.0,
        JobStatus.RESTARTING: 4.0,
    }
    chronicle.is_now(JobStatus.RUNNING, 5.0)
    assert chronicle.entered()[JobStatus.RUNNING] == 5.0


def test_a_job_that_continues_has_not_ended():
    chronicle = Chronicle(now=1.0)
    chronicle.is_now(JobStatus.FINISHED, 2.0)
    assert chronicle.ended_at == 2.0
    chronicle.is_now(JobStatus.CREATED, 3.0)
    assert (chronicle.started_at, chronicle.ended_at) == (1.0, None)


def test_a_job_that_restarts_at_once_has_recovered():
    chronicle = Chronicle(now=1.0)
    chronicle.is_now(JobStatus.RUNNING, 2.0)
    chronicle.restarted(3.0, InternalError("once"), (PipelineId(0),))
    chronicle.is_now(JobStatus.RUNNING, 4.0)
    assert chronicle.failures[0].recovered_at == 4.0


def test_the_last_failures_are_kept_newest_first():
    chronicle = Chronicle(now=1.0)
    for number in range(20):
        chronicle.restarted(float(number), InternalError(str(number)), (PipelineId(0),))
    chronicle.failed(20.0, InternalError("the end"))
    assert chronicle.restarts == 20
    assert len(chronicle.failures) == 16
    assert chronicle.is_truncated
    assert [str(record.cause) for record in chronicle.failures[:2]] == ["the end", "19"]
    assert [record.is_final for record in chronicle.failures[:2]] == [True, False]


@pytest.mark.parametrize(
    ("cause", "slot"),
    [
        (SlotLost(3, "killed"), 3),
        (UserFunctionError("map", None, "(2/4)", None, "ValueError: x"), 1),
        (InternalError("x"), None),
    ],
)
def test_a_failure_knows_its_slot_where_the_cause_does(cause, slot):
    chronicle = Chronicle(now=1.0)
    chronicle.failed(2.0, cause)
    assert chronicle.failures[0].slot == slot
