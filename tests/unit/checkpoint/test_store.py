import os
from collections.abc import Callable
from contextlib import contextmanager

import pytest

from tests.checkpoint_store_contract import (
    CheckpointStoreContract,
    metadata_of,
    own,
    shared,
    state_in,
    take,
)
from tests.memory_store import MemoryStore
from tidegate.checkpoint.memory_store import MemoryCheckpointStore
from tidegate.checkpoint.metadata import encode
from tidegate.checkpoint.store import CheckpointStore
from tidegate.core.errors import DirectoryTaken, JobStopped, StorageError
from tidegate.core.ids import CheckpointId
from tidegate.storage.local import LocalStore


class TestInMemory(CheckpointStoreContract):
    @pytest.fixture
    def blobs(self):
        return MemoryStore()


class TestOnLocalDisk(CheckpointStoreContract):
    @pytest.fixture
    def blobs(self, tmp_path):
        return LocalStore(tmp_path / "job")

    def test_an_empty_directory_is_gone(self, store, blobs, tmp_path):
        take(store, blobs, 1, own("a"))
        store.discard(CheckpointId(1))
        assert not (tmp_path / "job" / "chk-1").exists()
        store.remove_if_empty()
        assert not (tmp_path / "job").exists()


class SlowStore(MemoryStore):
    """Does not answer some requests, which arrive when the test says so."""

    def __init__(self):
        super().__init__()
        self._lost = None
        self.under_way = []

    @contextmanager
    def losing(self, start):
        """A request to a path with this start is not answered."""
        self._lost = start
        with pytest.raises(StorageError):
            yield
        self._lost = None

    def put(self, path, data):
        self._request(super().put, path, data)

    def create_if_absent(self, path, data):
        return self._request(super().create_if_absent, path, data)

    def _request(self, act, path, data):
        if self._lost is not None and path.startswith(self._lost):
            self.under_way.append(lambda: act(path, data))
            raise StorageError(path, "no answer", "wait")
        return act(path, data)

    def arrive(self):
        for request in self.under_way:
            request()


def ids_in(store):
    return [each.checkpoint_id for each in store.retained().checkpoints]


class FailingStore(MemoryStore):
    """Fails to delete, or to tell that it has created, while it is told so."""

    fails_to_delete = False
    fails_before_creation = False
    fails_after_creation = False

    def delete(self, path):
        if self.fails_to_delete:
            raise StorageError(path, "no answer", "wait")
        super().delete(path)

    def create_if_absent(self, path, data):
        if self.fails_before_creation:
            raise StorageError(path, "no answer", "wait")
        created = super().create_if_absent(path, data)
        if self.fails_after_creation:
            raise StorageError(path, "no answer", "wait")
        return created


@pytest.fixture
def blobs():
    return FailingStore()


@pytest.mark.parametrize("is_created", [False, True])
def test_after_a_publication_with_unknown_result_the_storage_is_asked(blobs, is_created):
    store = CheckpointStore(blobs)
    store.begin(CheckpointId(1))
    blobs.fails_after_creation = is_created
    blobs.fails_before_creation = not is_created
    with pytest.raises(StorageError):
        store.publish(metadata_of(1))
    assert store.is_published(CheckpointId(1)) is is_created


def test_a_checkpoint_that_is_created_after_it_was_ruled_out_does_not_count(blobs):
    store = CheckpointStore(blobs)
    store.begin(CheckpointId(1))
    blobs.fails_before_creation = True
    with pytest.raises(StorageError):
        store.publish(metadata_of(1))
    assert not store.is_published(CheckpointId(1))
    store.rule_out(CheckpointId(1))
    blobs.put("chk-1/_metadata", encode(metadata_of(1)))
    assert not store.is_published(CheckpointId(1))
    blobs.fails_before_creation = False
    assert not CheckpointStore(blobs).retained().checkpoints


def test_a_full_disk_does_not_keep_a_checkpoint_from_being_ruled_out(tmp_path, monkeypatch):
    store = CheckpointStore(LocalStore(tmp_path))
    monkeypatch.setattr(LocalStore, "put", lambda *args: pytest.fail("there is no room"))
    store.rule_out(CheckpointId(1))


def test_metadata_that_is_read_wrongly_once_is_not_taken_for_that_of_somebody_else(blobs):
    store = CheckpointStore(blobs)
    take(store, blobs, 1)
    read, answers = blobs.read, [b"damaged on its way"]
    blobs.read = lambda path: answers.pop() if answers else read(path)
    with pytest.raises(StorageError, match="chk-1/_metadata"):
        store.is_published(CheckpointId(1))
    assert store.is_published(CheckpointId(1))


def test_a_publication_is_repeated_when_the_storage_is_back(blobs):
    store = CheckpointStore(blobs)
    store.begin(CheckpointId(1))
    blobs.fails_after_creation = True
    with pytest.raises(StorageError):
        store.publish(metadata_of(1))
    blobs.fails_after_creation = False
    assert store.publish(metadata_of(1)).endswith("chk-1")


def test_what_could_not_be_deleted_is_deleted_later(blobs):
    store = CheckpointStore(blobs)
    take(store, blobs, 1, own("a"), shared("s"))
    take(store, blobs, 2, own("b"))
    store.begin(CheckpointId(3))
    blobs.put("chk-3/c", b"")
    blobs.fails_to_delete = True
    with pytest.raises(StorageError, match="no answer"):
        store.abandon(CheckpointId(3), [])
    with pytest.raises(StorageError, match="no answer"):
        store.discard(CheckpointId(1))
    assert "chk-1/_metadata" in state_in(blobs)
    blobs.fails_to_delete = False
    store.discard(CheckpointId(1))
    assert state_in(blobs) == {"chk-2/_metadata", "chk-2/b"}


class WatchedStore(MemoryStore):
    """Lets something happen once, right after a listing or right before another call."""

    def __init__(self):
        super().__init__()
        self.after_listing = self.before_creating = self.before_putting = lambda: None
        self.calls = 0
        self.before_call: dict[int, Callable[[], object]] = {}

    def read(self, path, offset=0, size=None):
        self._called()
        return super().read(path, offset, size)

    def exists(self, path):
        self._called()
        return super().exists(path)

    def _called(self):
        self.calls += 1
        self.before_call.pop(self.calls, lambda: None)()

    def put(self, path, data):
        act, self.before_putting = self.before_putting, lambda: None
        act()
        super().put(path, data)

    def list(self, path=""):
        found = list(super().list(path))
        act, self.after_listing = self.after_listing, lambda: None
        act()
        return iter(found)

    def create_if_absent(self, path, data):
        act, self.before_creating = self.before_creating, lambda: None
        act()
        return super().create_if_absent(path, data)


def test_what_is_published_while_the_directory_is_claimed_is_found():
    blobs = WatchedStore()
    older = CheckpointStore(blobs)
    take(older, blobs, 1)
    older.begin(CheckpointId(2))
    blobs.after_listing = lambda: older.publish(metadata_of(2))
    newer = CheckpointStore(blobs)
    newer.clean_leftovers()
    assert [each.checkpoint_id for each in newer.retained().checkpoints] == [1, 2]
    assert "chk-2/_metadata" in state_in(blobs)


def test_a_driver_that_is_replaced_while_it_publishes_has_not_published():
    blobs = WatchedStore()
    older = CheckpointStore(blobs)
    older.begin(CheckpointId(1))
    blobs.before_creating = lambda: CheckpointStore(blobs)
    with pytest.raises(DirectoryTaken):
        older.publish(metadata_of(1))
    assert CheckpointStore(blobs).retained().checkpoints == ()


def test_a_claim_that_took_long_counts_from_its_end():
    blobs = WatchedStore()
    others = []

    def claim_three_times():
        others.extend(CheckpointStore(blobs) for _ in range(3))

    CheckpointStore(blobs)
    blobs.after_listing = claim_three_times
    slow = CheckpointStore(blobs)
    owners = [each for each in (*others, slow) if each.still_owned()]
    assert owners == [slow]


@pytest.mark.parametrize("call", [1, 2])
def test_an_owner_that_is_replaced_twice_while_it_asks_is_none(call):
    blobs = WatchedStore()
    oldest = CheckpointStore(blobs)
    blobs.before_call = {blobs.calls + call: lambda: [CheckpointStore(blobs) for _ in range(2)]}
    assert not oldest.still_owned()


def test_a_driver_that_wakes_up_does_not_take_back_the_ids_that_are_used():
    blobs = WatchedStore()
    oldest = CheckpointStore(blobs)
    others = []

    def another_goes_on():
        others.append(CheckpointStore(blobs))
        take(others[0], blobs, 1)
        others[0].begin(CheckpointId(2))

    blobs.before_putting = another_goes_on
    oldest.begin(CheckpointId(1))
    # The third one has not seen checkpoint 2 and aborts what is prepared for it.
    blobs.before_creating = lambda: others.append(CheckpointStore(blobs))
    with pytest.raises(DirectoryTaken):
        others[0].publish(metadata_of(2))
    assert others[1].highest_id == 2
    found = CheckpointStore(blobs).retained().checkpoints
    assert [each.checkpoint_id for each in found] == [1]


@pytest.mark.parametrize("is_taken", [False, True])
def test_what_a_driver_cannot_publish_counts_if_the_next_one_has_found_it(is_taken):
    blobs = SlowStore()
    replaced = CheckpointStore(blobs)
    take(replaced, blobs, 1)
    replaced.begin(CheckpointId(2))
    with blobs.losing("chk-2/_metadata"):
        replaced.publish(metadata_of(2))
    assert not replaced.is_published(CheckpointId(2))
    blobs.arrive()
    if is_taken:
        assert ids_in(CheckpointStore(blobs)) == [1, 2]
        with pytest.raises(DirectoryTaken):
            replaced.rule_out(CheckpointId(2))
    else:
        replaced.rule_out(CheckpointId(2))
    for _ in range(2):
        assert ids_in(CheckpointStore(blobs)) == ([1, 2] if is_taken else [1])


def test_what_a_driver_that_never_started_has_closed_counts_if_the_next_one_has_found_it():
    blobs = SlowStore()
    first = CheckpointStore(blobs)
    take(first, blobs, 1)
    first.begin(CheckpointId(2))
    with blobs.losing("closed-2"):
        CheckpointStore(blobs)
    blobs.put("chk-2/_metadata", encode(metadata_of(2)))
    assert ids_in(CheckpointStore(blobs)) == [1, 2]
    blobs.arrive()
    assert ids_in(CheckpointStore(blobs)) == [1, 2]


def test_a_note_that_arrives_late_does_not_lower_the_highest_id():
    blobs = SlowStore()
    first = CheckpointStore(blobs)
    take(first, blobs, 1)
    with blobs.losing("last-id"):
        first.begin(CheckpointId(2))
    first.begin(CheckpointId(3))
    with blobs.losing("chk-3/_metadata"):
        first.publish(metadata_of(3))
    note, creation = blobs.under_way
    note()
    second = CheckpointStore(blobs)
    assert ids_in(second) == [1]
    assert second.highest_id == 3
    creation()
    assert ids_in(CheckpointStore(blobs)) == [1]


def test_ids_of_an_earlier_version_are_in_the_names_of_its_checkpoints():
    blobs = MemoryStore()
    blobs.put("last-id-1", b"id 9")
    blobs.put("chk-8/state", b"")
    store = CheckpointStore(blobs)
    assert store.highest_id == 8
    store.remove_if_empty()
    assert not list(blobs.list())


def test_few_notes_are_kept():
    blobs = MemoryStore()
    store = CheckpointStore(blobs)
    for number in range(1, 10):
        take(store, blobs, number)
    assert [path for path in blobs.list() if path.startswith("last-id")] == [
        "last-id-1-8",
        "last-id-1-9",
    ]


def test_the_mark_of_a_stop_that_was_aborted_stops_nobody_when_it_arrives_late():
    blobs = SlowStore()
    store = CheckpointStore(blobs)
    take(store, blobs, 1)
    store.begin(CheckpointId(2))
    with blobs.losing("stopped-2"):
        store.stop(CheckpointId(2), "savepoints/2")
    store.do_not_stop(CheckpointId(2))
    take(store, blobs, 3)
    blobs.arrive()
    assert ids_in(CheckpointStore(blobs)) == [1, 3]


def test_a_void_checkpoint_that_arrives_late_does_not_keep_the_directory():
    blobs = MemoryStore()
    store = CheckpointStore(blobs)
    store.begin(CheckpointId(1))
    store.rule_out(CheckpointId(1))
    store.abandon(CheckpointId(1), ())
    blobs.put("chk-1/_metadata", encode(metadata_of(1)))
    store.end()
    store.remove_if_empty()
    assert not list(blobs.list())


def test_who_dies_while_it_removes_a_job_that_has_ended_leaves_none_to_run_again(
    tmp_path, monkeypatch
):
    class Killed(BaseException):
        pass

    unlink, lives = os.unlink, 0

    def until_killed(*arguments, **named):
        nonlocal lives
        lives -= 1
        if lives < 0:
            raise Killed
        unlink(*arguments, **named)

    for files in range(9):
        blobs = LocalStore(tmp_path / str(files))
        store = CheckpointStore(blobs)
        for number in (1, 2):
            take(store, blobs, number)
        store.end()
        for number in (1, 2):
            store.discard(CheckpointId(number))
        lives = files
        with monkeypatch.context() as patched:
            patched.setattr(os, "unlink", until_killed)
            try:
                store.remove_if_empty()
            except Killed:
                patched.undo()
                with pytest.raises(JobStopped):
                    CheckpointStore(blobs)
    assert lives > 0


def test_a_job_that_was_stopped_stays_so_when_an_earlier_savepoint_is_aborted_once_more():
    blobs = MemoryStore()
    store = CheckpointStore(blobs)
    blobs.put("notes", b"of somebody else, so that the directory stays")
    store.begin(CheckpointId(5))
    store.stop(CheckpointId(5), "savepoints/last")
    store.do_not_stop(CheckpointId(4))
    store.end()
    store.remove_if_empty()
    with pytest.raises(JobStopped, match="savepoints/last"):
        CheckpointStore(blobs)


def test_a_checkpoint_in_memory_is_kept_until_it_is_discarded():
    store = MemoryCheckpointStore()
    assert store.directory is None
    for number in (2, 1):
        store.begin(CheckpointId(number))
        store.publish(metadata_of(number))
    assert store.is_published(CheckpointId(1))
    assert [each.checkpoint_id for each in store.retained().checkpoints] == [1, 2]
    store.discard(CheckpointId(1))
    store.abandon(CheckpointId(3), [])
    assert not store.is_published(CheckpointId(1))
    assert store.highest_id == 2
    assert store.still_owned()


def test_both_stores_offer_the_same():
    in_files, in_memory = CheckpointStore(MemoryStore()), MemoryCheckpointStore()
    offered = {name for name in dir(in_files) if not name.startswith("_")}
    assert offered == {name for name in dir(in_memory) if not name.startswith("_")}
