"""`tidegate verify` on real jobs: sinks that keep their promise pass, broken ones are caught."""

from pathlib import Path

import pytest

from tests.effort import times
from tests.verified import some_points, verify

pytestmark = [pytest.mark.soak, pytest.mark.timeout(1800)]
PROGRAM = Path(__file__).with_name("verified_program.py")


def verified(tmp_path, sink, kills, points, options=()):
    place = f"{tmp_path}/out-{{run}}"
    return verify(
        tmp_path, PROGRAM, place, sink, sink=place, kills=kills, points=points, options=options
    )


@pytest.mark.prove
@pytest.mark.parametrize("exchange", ["pipelined", "jobs"])
def test_the_file_sink_is_exactly_once_wherever_the_job_is_killed(tmp_path, exchange):
    kills = times(2)
    options = ("-D", f"tidegate.exchange={exchange}")
    code, report = verified(tmp_path, "files", kills, some_points(kills), options)
    assert report["holds"], report
    assert code == 0
    assert all((point["lost"], point["duplicated"]) == (0, 0) for point in report["points"])


# Two kills are one of a slot and one of the driver: what a slot has acknowledged may be complete.


def test_a_sink_that_commits_before_the_checkpoint_is_complete_is_caught(tmp_path):
    code, report = verified(tmp_path, "hasty", 2, ["acknowledged"])
    assert code == 1
    assert not report["holds"]
    assert report["points"][0]["duplicated"] > 0
    assert any(text.startswith("duplicated: ") for text in report["points"][0]["examples"])


@pytest.mark.prove
def test_a_sink_that_forgets_what_it_has_prepared_is_caught(tmp_path):
    code, report = verified(tmp_path, "forgetful", 2, ["pre-committed"])
    assert code == 1
    assert report["points"][0]["lost"] > 0
