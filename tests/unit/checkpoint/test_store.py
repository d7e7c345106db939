from collections.abc import Callable

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


def test_a_driver_does_not_start_if_it_cannot_know_which_ids_are_used():
    blobs = MemoryStore()
    store = CheckpointStore(blobs)
    take(store, blobs, 8)
    store.begin(CheckpointId(9))
    content = blobs.read("last-id-1")
    flipped = [
        content[: bit // 8] + bytes([content[bit // 8] ^ 1 << bit % 8]) + content[bit // 8 + 1 :]
        for bit in range(8 * len(content))
    ]
    for damaged in [*flipped, *(content[:length] for length in range(len(content)))]:
        blobs.put("last-id-1", damaged)
        with pytest.raises(StorageError, match="last-id-1: it is corrupt"):
            CheckpointStore(blobs)
    blobs.put("last-id-1", content)
    assert CheckpointStore(blobs).highest_id == 9


def test_ids_of_an_earlier_version_are_read():
    blobs = MemoryStore()
    blobs.put("last-id-1", b"9")
    assert CheckpointStore(blobs).highest_id == 9


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
