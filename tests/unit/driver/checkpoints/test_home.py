"""Where a job that resumes finds its checkpoints."""

import shutil
from datetime import timedelta

import pytest

from tests.checkpoint_store_contract import metadata_of, take
from tidegate.checkpoint.store import CheckpointStore
from tidegate.core.checkpoint_settings import CheckpointSettings
from tidegate.core.errors import JobStopped, NoCheckpoint
from tidegate.driver.checkpoints import home
from tidegate.storage.local import LocalStore


@pytest.fixture
def directory(tmp_path):
    """The directory of a job with one checkpoint."""
    directory = tmp_path / metadata_of(1).job_id
    blobs = LocalStore(directory)
    take(CheckpointStore(blobs, "job"), blobs, 1)
    return directory


@pytest.fixture
def settings(tmp_path):
    return CheckpointSettings(
        interval=timedelta(seconds=1), directory=str(tmp_path), restore_path="latest"
    )


def test_a_job_resumes_in_its_directory(directory, settings):
    found = home.open_home("job", settings)
    assert [each.checkpoint_id for each in found.retained] == [1]
    assert found.directory == str(directory)


def test_a_job_that_ends_while_another_driver_starts_does_not_run_again(
    directory, settings, monkeypatch
):
    def found_too_early(*args, **kwargs):
        found = find_latest(*args, **kwargs)
        shutil.rmtree(directory)
        return found

    find_latest = home.find_latest
    monkeypatch.setattr(home, "find_latest", found_too_early)
    with pytest.raises(JobStopped, match="has ended while this driver started"):
        home.open_home("job", settings)
    assert not directory.exists()


def test_a_job_whose_checkpoints_are_removed_while_another_driver_starts_does_not_run_again(
    directory, settings, monkeypatch
):
    """It has ended: its owner was still there, but no checkpoint."""

    def found_too_late(*args, **kwargs):
        shutil.rmtree(directory)
        return find_latest(*args, **kwargs)

    find_latest = home.find_latest
    monkeypatch.setattr(home, "find_latest", found_too_late)
    with pytest.raises(JobStopped, match="has ended while this driver started"):
        home.open_home("job", settings)
    assert not directory.exists()


def test_a_job_that_ends_while_another_driver_claims_its_directory_does_not_run_again(
    directory, settings, monkeypatch
):
    """The claim arrives after everything else is gone."""

    def created_too_late(store, path, data):
        shutil.rmtree(directory, ignore_errors=True)
        return create(store, path, data)

    create = LocalStore.create_if_absent
    monkeypatch.setattr(LocalStore, "create_if_absent", created_too_late)
    with pytest.raises(JobStopped, match="has ended while this driver started"):
        home.open_home("job", settings)
    assert not directory.exists()


def test_a_job_without_checkpoints_continues_under_its_id(tmp_path, settings):
    CheckpointStore(LocalStore(tmp_path / "begun"), "job")
    assert home.open_home("job", settings).job_id == "begun"


def test_a_job_whose_owner_is_damaged_does_not_start_beside_itself(tmp_path, settings):
    CheckpointStore(LocalStore(tmp_path / "begun"), "job")
    owner = tmp_path / "begun" / "owner-1"
    written = owner.read_bytes()
    for place in range(len(written)):
        owner.write_bytes(written[:place] + bytes([written[place] ^ 1]) + written[place + 1 :])
        with pytest.raises(NoCheckpoint, match="owner-1"):
            home.open_home("job", settings)


def test_a_damaged_owner_does_no_harm_if_there_is_a_checkpoint(directory, settings):
    owner = directory / "owner-1"
    owner.write_bytes(owner.read_bytes()[1:])
    assert home.open_home("job", settings).directory == str(directory)
