"""What `tidegate doctor --master` says of a master with 16 task slots."""

import pytest

from tidegate.datastream.execution import cluster_report
from tidegate.exchange.pipelined.self_test import SelfTest
from tidegate.prerequisites.check import Status
from tidegate.transport.versions import versions

JOB = "a job of parallelism {} with one key_by needs"


def checks(spark, parallelism):
    return {each.name: each for each in cluster_report._checks(spark.sparkContext, parallelism)}


def test_a_job_that_fits_gets_the_fast_exchange(spark):
    found = checks(spark, 5)
    assert {each.status for each in found.values()} == {Status.OK}
    assert found["task slots"].found == (
        f"16; {JOB.format(5)} 16 for the pipelined exchange, 5 more for each further key_by, "
        "and 6 otherwise"
    )
    assert f"tidegate {versions()['tidegate']}" in found["workers"].found
    assert found["exchange"].found.startswith("pipelined")


def test_a_job_without_room_for_pumps_gets_the_other_one(spark):
    found = checks(spark, 6)["exchange"]
    assert (found.status, found.found) == (Status.WARNING, "jobs: each step is a Spark job")
    assert found.advice == "Spark has 16 task slots for the job, but it needs 19"


def test_a_streaming_shuffle_that_does_not_work_is_not_used(spark, monkeypatch):
    monkeypatch.setattr(SelfTest, "failure", lambda self: "nothing arrived")
    found = checks(spark, 2)["exchange"]
    assert (found.status, found.advice) == (Status.WARNING, "nothing arrived")


def test_a_job_that_does_not_fit_at_all_is_told_so(spark):
    found = checks(spark, 16)
    assert list(found) == ["Spark", "task slots"]
    assert found["task slots"].status is Status.MISSING
    assert found["task slots"].advice.startswith(f"{JOB.format(16)} 17 at least")


@pytest.mark.parametrize(
    ("theirs", "found"),
    [
        ("1.2.3", "pyarrow 1.2.3 instead of {pyarrow}"),
        (None, "ModuleNotFoundError: No module named 'pyarrow'"),
    ],
)
def test_workers_with_other_packages_are_found(spark, monkeypatch, theirs, found):
    ours = versions()

    def other_versions():
        if theirs is None:
            raise ModuleNotFoundError("No module named 'pyarrow'")
        return {**ours, "pyarrow": theirs}

    monkeypatch.setattr(cluster_report, "versions", other_versions)
    check = checks(spark, 2)["workers"]
    assert (check.status, check.found) == (Status.MISSING, found.format(**ours))
    assert "spark.archives" in check.advice
