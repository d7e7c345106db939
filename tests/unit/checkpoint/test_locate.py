import pytest

from tests.checkpoint_store_contract import metadata_of, own, shared, take
from tidegate.checkpoint.locate import (
    candidates,
    check_files,
    find_begun,
    find_latest,
    open_checkpoint,
)
from tidegate.checkpoint.metadata import FORMAT_VERSION, encode
from tidegate.checkpoint.store import CheckpointStore
from tidegate.core.errors import CorruptCheckpoint, NoCheckpoint, UnsupportedFormat
from tidegate.core.ids import CheckpointId
from tidegate.storage.local import LocalStore


@pytest.fixture
def base(tmp_path):
    return LocalStore(tmp_path)


@pytest.fixture
def job(tmp_path):
    """The directory of a job with the checkpoints 1, 2 and 10."""
    blobs = LocalStore(tmp_path / "job")
    store = CheckpointStore(blobs)
    for number in (1, 2, 10):
        take(store, blobs, number, own("a"), shared("s"))
    return tmp_path / "job"


@pytest.mark.parametrize("form", ["{}/chk-2", "{}/chk-2/", "{}/chk-2/_metadata", "file://{}/chk-2"])
def test_a_checkpoint_is_opened_by_its_path(job, form):
    found = open_checkpoint(form.format(job))
    assert found.metadata == metadata_of(2, own("a"), shared("s"))
    assert (found.location, found.path) == ((str(job), "chk-2"), f"{job}/chk-2")
    store, path = found.resolver()(shared("s"))
    assert store.read(path) == b"x"
    store, path = found.location.resolver()(own("a"))
    assert path == "chk-2/a"
    assert store.read(path) == b"x"


def test_the_directory_of_a_job_means_its_latest(job):
    assert open_checkpoint(str(job)).location.name == "chk-10"


def test_all_checkpoints_of_a_job_are_candidates_the_latest_first(job):
    assert candidates(str(job)) == [f"{job}/chk-{number}" for number in (10, 2, 1)]
    assert candidates(f"{job}/chk-1/_metadata") == []


def test_a_checkpoint_can_be_moved_with_its_directory(job, tmp_path):
    job.rename(tmp_path / "elsewhere")
    found = open_checkpoint(f"{tmp_path}/elsewhere/chk-1")
    check_files(found)
    assert found.location.job_directory == f"{tmp_path}/elsewhere"


def test_a_path_that_does_not_exist_is_named(tmp_path):
    with pytest.raises(NoCheckpoint, match="/nowhere/chk-1: there is no such directory"):
        open_checkpoint(f"{tmp_path}/nowhere/chk-1")


def test_a_file_is_no_checkpoint(tmp_path):
    (tmp_path / "chk-1").write_text("")
    with pytest.raises(NoCheckpoint, match="/chk-1: it is a file, not a checkpoint"):
        open_checkpoint(f"{tmp_path}/chk-1")


def test_a_directory_of_something_else_holds_no_checkpoint(tmp_path):
    (tmp_path / "notes.txt").write_text("")
    with pytest.raises(
        NoCheckpoint, match="it contains no checkpoint; specify a savepoint, a chk-"
    ):
        open_checkpoint(str(tmp_path))


def test_a_half_written_checkpoint_is_none(job):
    (job / "chk-2" / "_metadata").unlink()
    with pytest.raises(NoCheckpoint, match=r"has 1 file\(s\) but no _metadata, so it was never"):
        open_checkpoint(f"{job}/chk-2")
    with pytest.raises(NoCheckpoint, match="never completed"):
        open_checkpoint(f"{job}/chk-2/_metadata")


def test_a_corrupt_checkpoint_is_named(job):
    (job / "chk-10" / "_metadata").write_bytes(b"TIDEGATE and then nonsense, as long as it takes")
    with pytest.raises(CorruptCheckpoint, match=f"{job}/chk-10/_metadata is corrupt"):
        open_checkpoint(str(job))


def test_the_metadata_of_another_checkpoint_are_refused(job):
    older = (job / "chk-2" / "_metadata").read_bytes()
    (job / "chk-10" / "_metadata").write_bytes(older)
    with pytest.raises(CorruptCheckpoint, match=r"chk-10/_metadata is corrupt.*checkpoint 10"):
        open_checkpoint(str(job))
    retained = CheckpointStore(LocalStore(job)).retained()
    assert [metadata.checkpoint_id for metadata in retained.checkpoints] == [1, 2]
    assert [each.name for each in retained.unreadable] == ["chk-10"]


def test_a_checkpoint_of_a_newer_format_is_named(job):
    blobs = LocalStore(job)
    CheckpointStore(blobs).publish(metadata_of(11, format_version=FORMAT_VERSION + 1))
    with pytest.raises(
        UnsupportedFormat, match=f"{job}/chk-11/_metadata has the checkpoint format"
    ):
        open_checkpoint(f"{job}/chk-11")


def test_a_missing_or_short_file_is_found_before_the_restore(job):
    found = open_checkpoint(str(job))
    check_files(found)
    (job / "shared" / "s").write_bytes(b"")
    with pytest.raises(CorruptCheckpoint, match="/shared/s is corrupt: expected 1 bytes, found 0"):
        check_files(found)
    (job / "shared" / "s").unlink()
    with pytest.raises(CorruptCheckpoint, match="/shared/s is corrupt: expected a file of 1 bytes"):
        check_files(found)


def jobs(tmp_path):
    """Two jobs of one name, and one of another."""
    for job, name, numbers in (("a", "words", (1, 5)), ("b", "words", (7,)), ("c", "other", (9,))):
        blobs = LocalStore(tmp_path / job)
        store = CheckpointStore(blobs)
        for number in numbers:
            store.publish(metadata_of(number, job_name=name))


def test_the_latest_of_a_name_is_the_one_completed_last(base, tmp_path):
    jobs(tmp_path)
    found = find_latest(base, job_name="words")
    assert found.location == (f"{tmp_path}/b", "chk-7")
    assert find_latest(base, job_name="other").location.name == "chk-9"
    assert find_latest(base, job_name="unknown") is None


def test_the_latest_of_a_job_id(base, tmp_path):
    jobs(tmp_path)
    assert find_latest(base, job_id="a").location.name == "chk-5"
    assert find_latest(base, job_id="z") is None


def test_unreadable_checkpoints_are_skipped_and_told(base, tmp_path):
    jobs(tmp_path)
    (tmp_path / "a" / "chk-5" / "_metadata").write_bytes(b"nonsense")
    found = find_latest(base, job_id="a")
    assert found.location.name == "chk-1"


def test_looking_for_checkpoints_takes_nothing_over(job):
    before = sorted(path.name for path in job.iterdir())
    open_checkpoint(str(job))
    assert sorted(path.name for path in job.iterdir()) == before


def test_nothing_is_found_where_there_is_nothing(base):
    assert find_latest(base, job_name="words") is None


def test_a_job_without_a_checkpoint_is_found_by_its_name_the_latest_one(tmp_path, base):
    CheckpointStore(LocalStore(tmp_path / "first"), "words")
    CheckpointStore(LocalStore(tmp_path / "second"), "words")
    CheckpointStore(LocalStore(tmp_path / "third"), "another")
    assert find_begun(base, "words") == "second"
    assert find_begun(base, "numbers") is None


def test_a_job_that_completes_its_first_checkpoint_meanwhile_is_still_found(job, base):
    assert find_begun(base, "") == job.name


def test_a_damaged_owner_may_be_that_of_the_job(tmp_path, base):
    CheckpointStore(LocalStore(tmp_path / "first"), "words")
    CheckpointStore(LocalStore(tmp_path / "second"), "words")
    owner = tmp_path / "second" / "owner-1"
    owner.write_bytes(owner.read_bytes()[:20])
    with pytest.raises(NoCheckpoint, match="second/owner-1"):
        find_begun(base, "words")


def test_an_owner_that_is_cut_within_the_name_of_its_job_is_damaged(tmp_path, base):
    CheckpointStore(LocalStore(tmp_path / "first"), "daily-{region}")
    owner = tmp_path / "first" / "owner-1"
    data = owner.read_bytes()
    owner.write_bytes(data[: data.index(b"}") + 1])
    with pytest.raises(NoCheckpoint, match="first/owner-1"):
        find_begun(base, "daily-{region}")


def test_a_void_checkpoint_is_not_opened_by_its_path(tmp_path):
    class Late(LocalStore):
        may_act_late = True

    blobs = Late(tmp_path / "job")
    store = CheckpointStore(blobs)
    take(store, blobs, 1)
    store.begin(CheckpointId(2))
    store.rule_out(CheckpointId(2))
    blobs.put("chk-2/_metadata", encode(metadata_of(2)))
    assert open_checkpoint(str(tmp_path / "job")).checkpoint_id == 1
    with pytest.raises(NoCheckpoint, match="given it up"):
        open_checkpoint(str(tmp_path / "job" / "chk-2"))
