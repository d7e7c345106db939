"""What the store of a job's checkpoints must do on every kind of storage."""

from dataclasses import replace

import pytest

from tidegate.checkpoint.layout import published, stop_in
from tidegate.checkpoint.metadata import (
    FORMAT_VERSION,
    CheckpointMetadata,
    OperatorRecord,
    encode,
)
from tidegate.checkpoint.store import CheckpointStore
from tidegate.core.errors import CorruptCheckpoint, DirectoryTaken, JobStopped, UnsupportedFormat
from tidegate.core.ids import CheckpointId, JobId, OperatorId
from tidegate.state.pointers import (
    FileScope,
    FileSegment,
    OperatorHandle,
    StoredFile,
    SubtaskSnapshot,
    path_of,
)
from tidegate.stream.elements import BarrierKind

OPERATOR = OperatorId("operator")


def snapshot_of(*files: StoredFile) -> SubtaskSnapshot:
    """What a subtask tells that has written these files, for tests without content."""
    return SubtaskSnapshot(
        operators=tuple(
            OperatorHandle(operator_id=OPERATOR, operator=FileSegment(file, 0, 1, 0))
            for file in files
        )
    )


def metadata_of(
    number: int, *files: StoredFile, job_name: str = "job", **more
) -> CheckpointMetadata:
    handles = snapshot_of(*files).operators
    record = OperatorRecord(
        operator_id=OPERATOR,
        uid=None,
        name="operator",
        parallelism=max(1, len(handles)),
        max_parallelism=128,
        subtasks=dict(enumerate(handles)),
    )
    return CheckpointMetadata(
        job_id=JobId("0" * 32),
        job_name=job_name,
        checkpoint_id=CheckpointId(number),
        kind=BarrierKind.CHECKPOINT,
        triggered_at=float(number),
        completed_at=number + 0.5,
        operators={OPERATOR: record},
        **more,
    )


def shared(name: str) -> StoredFile:
    return StoredFile(FileScope.SHARED, name)


def own(name: str) -> StoredFile:
    return StoredFile(FileScope.EXCLUSIVE, name)


def write(blobs, number: int, *files: StoredFile) -> None:
    for file in files:
        blobs.put(path_of(file, f"chk-{number}"), b"x")


def state_in(blobs) -> set[str]:
    """Everything but the files by which the store keeps its own books."""
    return {path for path in blobs.list() if "/" in path}


def take(store, blobs, number: int, *files: StoredFile, base: int | None = None) -> str:
    """A checkpoint from its trigger to its publication."""
    store.begin(CheckpointId(number), None if base is None else CheckpointId(base))
    write(blobs, number, *files)
    return store.publish(metadata_of(number, *files))


class CheckpointStoreContract:
    """Inherit, and define a fixture `blobs`: the empty directory of a job."""

    @pytest.fixture
    def store(self, blobs):
        return CheckpointStore(blobs)

    def test_a_published_checkpoint_is_found_by_the_next_driver(self, store, blobs):
        path = take(store, blobs, 1, own("a"), shared("s"))
        assert path.endswith("/chk-1") or "/chk-1?" in path
        assert "secret" not in path
        retained = CheckpointStore(blobs).retained()
        assert retained.checkpoints == (metadata_of(1, own("a"), shared("s")),)
        assert retained.unreadable == ()

    def test_retained_checkpoints_come_oldest_first(self, store, blobs):
        for number in (2, 10, 9):
            take(store, blobs, number)
        found = CheckpointStore(blobs).retained().checkpoints
        assert [each.checkpoint_id for each in found] == [2, 9, 10]

    def test_publication_may_be_repeated(self, store, blobs):
        path = take(store, blobs, 1)
        assert store.publish(metadata_of(1)) == path
        assert store.is_published(CheckpointId(1))

    def test_what_was_not_published_is_not_there(self, store):
        store.begin(CheckpointId(1))
        assert not store.is_published(CheckpointId(1))

    def test_a_checkpoint_of_somebody_else_under_this_id_is_not_ours(self, store, blobs):
        take(store, blobs, 1)
        with pytest.raises(DirectoryTaken):
            store.publish(replace(metadata_of(1), job_name="another"))
        assert not store.is_published(CheckpointId(1))

    def test_discarding_deletes_a_checkpoint_and_the_shared_files_of_it_alone(self, store, blobs):
        take(store, blobs, 1, own("a"), shared("one"), shared("both"))
        take(store, blobs, 2, own("b"), shared("two"), shared("both"), base=1)
        store.discard(CheckpointId(1))
        assert state_in(blobs) == {"chk-2/_metadata", "chk-2/b", "shared/two", "shared/both"}
        store.discard(CheckpointId(2))
        assert state_in(blobs) == set()

    def test_discarding_may_be_repeated(self, store, blobs):
        take(store, blobs, 1, shared("s"))
        take(store, blobs, 2, shared("s"), base=1)
        store.discard(CheckpointId(1))
        store.discard(CheckpointId(1))
        assert state_in(blobs) == {"chk-2/_metadata", "shared/s"}

    def test_an_abandoned_checkpoint_leaves_nothing_but_what_others_need(self, store, blobs):
        take(store, blobs, 1, shared("old"))
        store.begin(CheckpointId(2), CheckpointId(1))
        write(blobs, 2, own("a"), own("nobody told"), shared("new"))
        store.abandon(CheckpointId(2), [snapshot_of(own("a"), shared("new"), shared("old"))])
        assert state_in(blobs) == {"chk-1/_metadata", "shared/old"}

    def test_a_late_snapshot_is_deleted_without_its_neighbours(self, store, blobs):
        store.begin(CheckpointId(1))
        write(blobs, 1, own("late"), own("other"), shared("s"))
        store.abandon(CheckpointId(1), [snapshot_of(own("late"), shared("s"))], is_whole=False)
        assert state_in(blobs) == {"chk-1/other"}

    def test_files_of_a_base_stay_until_what_builds_on_it_is_decided(self, store, blobs):
        take(store, blobs, 1, shared("kept"), shared("dropped"))
        store.begin(CheckpointId(2), CheckpointId(1))
        take(store, blobs, 3)
        store.discard(CheckpointId(1))
        assert {"shared/kept", "shared/dropped"} <= state_in(blobs)
        store.publish(metadata_of(2, shared("kept")))
        assert state_in(blobs) == {"chk-2/_metadata", "chk-3/_metadata", "shared/kept"}

    def test_files_of_a_base_go_when_what_builds_on_it_is_aborted(self, store, blobs):
        take(store, blobs, 1, shared("s"))
        store.begin(CheckpointId(2), CheckpointId(1))
        store.discard(CheckpointId(1))
        store.abandon(CheckpointId(2), [])
        assert state_in(blobs) == set()

    def test_the_next_driver_removes_what_no_checkpoint_names(self, store, blobs):
        take(store, blobs, 1, own("a"), shared("s"))
        store.begin(CheckpointId(2))
        write(blobs, 2, own("b"), shared("t"))
        write(blobs, 1, own("never told"))
        blobs.put("chk-1/._metadata.0123456789abcdef.tmp", b"")
        blobs.put("taskowned/theirs", b"")
        CheckpointStore(blobs).clean_leftovers()
        assert state_in(blobs) == {"chk-1/_metadata", "chk-1/a", "shared/s", "taskowned/theirs"}

    def test_an_unreadable_checkpoint_is_named_and_nothing_it_may_need_is_deleted(
        self, store, blobs
    ):
        take(store, blobs, 1, own("a"), shared("s"))
        take(store, blobs, 2, own("b"), shared("t"))
        blobs.put("chk-2/_metadata", blobs.read("chk-2/_metadata")[:-1])
        write(blobs, 3, own("leftover"))
        again = CheckpointStore(blobs)
        (unreadable,) = again.retained().unreadable
        assert "chk-2" in unreadable.path
        assert isinstance(unreadable.error, CorruptCheckpoint)
        assert [each.checkpoint_id for each in again.retained().checkpoints] == [1]
        before = state_in(blobs)
        assert again.clean_leftovers() == ["chk-3/leftover"]
        assert state_in(blobs) == before - {"chk-3/leftover"}

    def test_a_checkpoint_of_a_newer_format_is_left_alone(self, store, blobs):
        take(store, blobs, 1, own("a"), shared("s"))
        take(store, blobs, 2, shared("y"))
        store.publish(metadata_of(3, own("x"), shared("y"), format_version=FORMAT_VERSION + 1))
        write(blobs, 3, own("x"), shared("y"))
        again = CheckpointStore(blobs)
        assert isinstance(again.retained().unreadable[0].error, UnsupportedFormat)
        before = state_in(blobs)
        again.clean_leftovers()
        again.discard(CheckpointId(2))
        assert state_in(blobs) == before - {"chk-2/_metadata"}

    def test_ids_are_never_used_twice(self, store, blobs):
        assert store.highest_id == 0
        take(store, blobs, 1)
        store.begin(CheckpointId(2))
        store.abandon(CheckpointId(2), [])
        assert CheckpointStore(blobs).highest_id == 2
        store = CheckpointStore(blobs)
        take(store, blobs, 7)
        store.discard(CheckpointId(7))
        assert CheckpointStore(blobs).highest_id == 7

    def test_the_later_driver_owns_the_directory(self, store, blobs):
        take(store, blobs, 1)
        assert store.still_owned()
        later = CheckpointStore(blobs)
        assert later.still_owned()
        assert not store.still_owned()
        with pytest.raises(DirectoryTaken, match="no longer owned by this driver"):
            store.begin(CheckpointId(2))
        with pytest.raises(DirectoryTaken, match="stop one of the two"):
            store.publish(metadata_of(2))
        latest = CheckpointStore(blobs)
        assert [each.still_owned() for each in (store, later, latest)] == [False, False, True]

    def test_a_driver_that_has_lost_the_directory_deletes_nothing(self, store, blobs):
        take(store, blobs, 1, own("a"), shared("s"))
        store.begin(CheckpointId(2), CheckpointId(1))
        write(blobs, 2, own("b"), shared("t"))
        CheckpointStore(blobs)
        before = set(blobs.list())
        store.discard(CheckpointId(1))
        store.abandon(CheckpointId(2), [snapshot_of(own("b"), shared("t"))])
        store.clean_leftovers()
        store.remove_if_empty()
        assert set(blobs.list()) == before

    def test_a_checkpoint_that_appears_after_the_directory_was_claimed_is_void(self, store, blobs):
        take(store, blobs, 1)
        store.begin(CheckpointId(2))
        newer = CheckpointStore(blobs)
        blobs.put("chk-2/_metadata", encode(metadata_of(2)))
        newest = CheckpointStore(blobs)
        for driver in (newer, newest):
            assert [each.checkpoint_id for each in driver.retained().checkpoints] == [1]
            assert driver.highest_id == 2
        assert published(blobs.list()) == [1]
        newest.clean_leftovers()
        assert state_in(blobs) == {"chk-1/_metadata"}
        take(newest, blobs, 3)
        assert published(blobs.list()) == [3, 1]

    def test_a_checkpoint_that_appears_two_drivers_later_is_void(self, store, blobs):
        take(store, blobs, 1)
        store.begin(CheckpointId(2))
        take(CheckpointStore(blobs), blobs, 3)
        CheckpointStore(blobs)
        blobs.put("chk-2/_metadata", encode(metadata_of(2)))
        assert published(blobs.list()) == [3, 1]
        assert CheckpointStore(blobs).highest_id == 3

    def test_nobody_takes_over_a_job_that_has_ended_and_whose_checkpoints_are_being_deleted(
        self, store, blobs
    ):
        take(store, blobs, 1)
        store.end()
        store.discard(CheckpointId(1))
        with pytest.raises(JobStopped, match="has ended"):
            CheckpointStore(blobs)

    def test_a_directory_that_holds_no_checkpoint_is_removed(self, store, blobs):
        take(store, blobs, 1, shared("s"))
        store.remove_if_empty()
        assert "chk-1/_metadata" in state_in(blobs)
        store.discard(CheckpointId(1))
        store.remove_if_empty()
        assert list(blobs.list()) == []
        assert not store.still_owned()

    def test_a_driver_does_not_own_a_directory_that_was_removed_and_made_again(self, store, blobs):
        store.remove_if_empty()
        again = CheckpointStore(blobs)
        assert again.still_owned()
        assert not store.still_owned()

    def test_files_of_others_are_not_removed_with_the_directory(self, store, blobs):
        blobs.put("README", b"")
        store.end()
        store.remove_if_empty()
        assert all(stop_in(path) is None for path in blobs.list())
        assert "README" in set(blobs.list())
