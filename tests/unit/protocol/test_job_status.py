import itertools

import pytest

from tidegate.protocol.job_status import JobStatus, status_of
from tidegate.protocol.region import RegionState

R = RegionState


@pytest.mark.parametrize(
    ("regions", "status"),
    [
        ([R.CREATED, R.CREATED], JobStatus.CREATED),
        ([R.CREATED, R.DEPLOYING], JobStatus.RUNNING),
        ([R.RUNNING, R.RUNNING], JobStatus.RUNNING),
        ([R.RUNNING, R.FINISHED], JobStatus.RUNNING),
        ([R.FINISHED, R.FINISHED], JobStatus.FINISHED),
        ([R.RUNNING, R.FAILING], JobStatus.FAILING),
        ([R.RUNNING, R.RESTARTING], JobStatus.RESTARTING),
        ([R.FINISHED, R.RESTARTING], JobStatus.RESTARTING),
        ([R.RUNNING, R.FAILED], JobStatus.FAILING),
        ([R.FINISHED, R.FAILED], JobStatus.FAILED),
        ([R.CANCELLING, R.FAILED], JobStatus.FAILING),
        ([R.CANCELED, R.CANCELLING], JobStatus.CANCELLING),
        ([R.CANCELED, R.FINISHED], JobStatus.CANCELED),
        ([R.CANCELED, R.FAILED], JobStatus.FAILED),
    ],
)
def test_the_status_of_a_job_follows_from_its_regions(regions, status):
    assert status_of(regions) is status
    assert status_of(reversed(regions)) is status


def test_a_job_has_ended_when_all_its_regions_have():
    for regions in itertools.product(RegionState, repeat=2):
        assert status_of(regions).is_terminal == all(state.is_terminal for state in regions)


def test_the_names_and_questions_are_flinks():
    assert JobStatus.FINISHED.is_globally_terminal_state()
    assert not JobStatus.SUSPENDED.is_globally_terminal_state()
    assert JobStatus.SUSPENDED.is_terminal_state()
    assert JobStatus.CANCELLING.value == 4
