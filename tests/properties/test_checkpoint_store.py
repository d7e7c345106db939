"""No reference to a deleted file exists, and no file without a reference."""

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tests.checkpoint_store_contract import metadata_of, own, shared, snapshot_of, state_in, write
from tests.effort import examples
from tests.memory_store import MemoryStore
from tidegate.checkpoint.store import CheckpointStore
from tidegate.core.errors import StorageError
from tidegate.core.ids import CheckpointId
from tidegate.state.pointers import FileScope, StoredFile, path_of


class UnreliableStore(MemoryStore):
    """Fails on demand; a failed creation may have taken effect."""

    is_down = False
    creates_when_down = False

    def delete(self, path):
        if self.is_down:
            raise StorageError(path, "no answer", "wait")
        super().delete(path)

    def create_if_absent(self, path, data):
        if not self.is_down:
            return super().create_if_absent(path, data)
        if self.creates_when_down:
            super().create_if_absent(path, data)
        raise StorageError(path, "no answer", "wait")


class Checkpoints(RuleBasedStateMachine):
    """A driver that takes, publishes, aborts and discards checkpoints, and restarts."""

    def __init__(self):
        super().__init__()
        self.blobs = UnreliableStore()
        self.store = CheckpointStore(self.blobs)
        self.next_file = 0
        self.completed: dict[int, set[StoredFile]] = {}
        self.pending: dict[int, set[StoredFile]] = {}
        self.held: dict[int, set[StoredFile]] = {}
        self.gone: dict[int, set[StoredFile]] = {}

    def new_files(self, kind, count):
        self.next_file += count
        return {kind(f"f{self.next_file - number}") for number in range(count)}

    @rule(data=st.data(), builds_on=st.booleans())
    def begin(self, data, builds_on):
        number = self.store.highest_id + 1
        base = max(self.completed) if builds_on and self.completed else None
        self.store.begin(CheckpointId(number), None if base is None else CheckpointId(base))
        self.pending[number] = set()
        named = () if base is None else self.completed[base]
        self.held[number] = {file for file in named if file.scope is FileScope.SHARED}
        self.write_for(data, number)

    @precondition(lambda self: self.pending)
    @rule(data=st.data())
    def write_more(self, data):
        self.write_for(data, data.draw(st.sampled_from(sorted(self.pending))))

    def write_for(self, data, number):
        new = self.new_files(own, data.draw(st.integers(0, 1)))
        new |= self.new_files(shared, data.draw(st.integers(0, 2)))
        write(self.blobs, number, *new)
        held = sorted(self.held[number], key=lambda file: file.name)
        reused = data.draw(st.sets(st.sampled_from(held))) if held else set()
        self.pending[number] |= new | reused

    @precondition(lambda self: self.pending)
    @rule(data=st.data())
    def publish(self, data):
        number = data.draw(st.sampled_from(sorted(self.pending)))
        self.store.publish(metadata_of(number, *self.pending[number]))
        self.completed[number] = self.pending.pop(number)
        del self.held[number]

    @precondition(lambda self: self.pending)
    @rule(data=st.data(), arrives=st.booleans())
    def publish_without_an_answer(self, data, arrives):
        number = data.draw(st.sampled_from(sorted(self.pending)))
        self.blobs.is_down, self.blobs.creates_when_down = True, arrives
        metadata = metadata_of(number, *self.pending[number])
        try:
            self.store.publish(metadata)
        except StorageError:
            pass
        self.blobs.is_down = False
        assert self.store.is_published(CheckpointId(number)) is arrives
        if arrives:
            self.store.publish(metadata)
            self.completed[number] = self.pending.pop(number)
            del self.held[number]
        else:
            self.abandon_one(number)

    @precondition(lambda self: self.pending)
    @rule(data=st.data())
    def abandon(self, data):
        self.abandon_one(data.draw(st.sampled_from(sorted(self.pending))))

    def abandon_one(self, number):
        files = self.pending.pop(number)
        del self.held[number]
        self.store.abandon(CheckpointId(number), [snapshot_of(*files)])
        self.gone[number] = files

    @precondition(lambda self: self.gone)
    @rule(data=st.data())
    def a_late_snapshot_arrives(self, data):
        number = data.draw(st.sampled_from(sorted(self.gone)))
        new = self.new_files(own, 1) | self.new_files(shared, 1)
        write(self.blobs, number, *new)
        late = snapshot_of(*new, *self.gone[number])
        self.store.abandon(CheckpointId(number), [late], is_whole=False)

    @precondition(lambda self: self.completed)
    @rule(data=st.data(), is_down=st.booleans())
    def discard(self, data, is_down):
        number = data.draw(st.sampled_from(sorted(self.completed)))
        self.blobs.is_down = is_down
        try:
            self.store.discard(CheckpointId(number))
        except StorageError:
            self.blobs.is_down = False
            self.store.discard(CheckpointId(number))
        self.blobs.is_down = False
        del self.completed[number]

    @rule()
    def the_driver_dies_and_the_next_one_starts(self):
        highest = self.store.highest_id
        self.store = CheckpointStore(self.blobs)
        self.store.clean_leftovers()
        assert self.store.highest_id == highest
        found = {each.checkpoint_id for each in self.store.retained().checkpoints}
        assert found == self.completed.keys()
        self.pending.clear()
        self.held.clear()

    @invariant()
    def what_is_needed_is_there_and_nothing_else(self):
        needed = {
            path_of(file, f"chk-{number}")
            for checkpoints in (self.completed, self.pending)
            for number, files in checkpoints.items()
            for file in files
        } | {f"chk-{number}/_metadata" for number in self.completed}
        held = {path_of(file, "") for files in self.held.values() for file in files}
        present = state_in(self.blobs)
        assert needed <= present <= needed | held


Checkpoints.TestCase.settings = examples(40, stateful_step_count=30)
TestCheckpoints = Checkpoints.TestCase
