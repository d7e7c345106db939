"""A job that runs on this machine already is noticed before another of its name starts."""

import os
from dataclasses import replace

import pytest

from tidegate.core.checkpoint_settings import CheckpointSettings
from tidegate.core.errors import AlreadyRunning
from tidegate.datastream.execution.executor import look_at_running_jobs
from tidegate.web.registry import HOME_VARIABLE, JobRecord, Registration

ID = "3f" * 16


@pytest.fixture
def running(tmp_path, monkeypatch):
    monkeypatch.setenv(HOME_VARIABLE, str(tmp_path / "home"))
    record = JobRecord(
        job_id=ID,
        name="counts",
        pid=os.getpid(),
        started_at=1.0,
        checkpoint_directory=str(tmp_path / "checkpoints" / ID),
    )
    return Registration(record)


def settings(directory, path="latest", take_over=False):
    return CheckpointSettings(directory=str(directory), restore_path=path, take_over=take_over)


def test_a_job_is_not_resumed_while_it_runs(running, tmp_path):
    with pytest.raises(AlreadyRunning, match=f"'counts' still runs, with id {ID}.*--take-over"):
        look_at_running_jobs("counts", settings(tmp_path / "checkpoints"))


def test_a_driver_that_takes_over_says_so(running, tmp_path, caplog):
    look_at_running_jobs("counts", settings(tmp_path / "checkpoints", take_over=True))
    assert caplog.messages == [
        f"this driver takes over job {ID} from process {os.getpid()}, which fails"
    ]


@pytest.mark.parametrize(("directory", "path"), [("others", "latest"), ("checkpoints", None)])
def test_a_second_job_of_one_name_is_warned_of(running, tmp_path, caplog, directory, path):
    look_at_running_jobs("counts", settings(tmp_path / directory, path))
    (warning,) = caplog.messages
    assert warning.startswith(f"another job named 'counts' already runs, with id {ID}")


def test_other_names_and_jobs_that_have_ended_are_no_concern(running, tmp_path, caplog):
    look_at_running_jobs("sums", settings(tmp_path / "checkpoints"))
    running.end(replace(running.record, state="FINISHED"))
    look_at_running_jobs("counts", settings(tmp_path / "checkpoints"))
    assert caplog.messages == []
