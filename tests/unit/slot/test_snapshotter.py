import queue

import pytest

from tests.programs import wait_until
from tidegate.core.errors import StateMisuse
from tidegate.core.ids import OperatorId, SubtaskId
from tidegate.core.modes import SavepointFormat
from tidegate.core.permit import Permit
from tidegate.core.workers import Threads
from tidegate.protocol.messages import (
    CheckpointAcknowledged,
    CheckpointDeclined,
    SnapshotSettings,
)
from tidegate.protocol.packet import Channel
from tidegate.slot.snapshotter import FrozenOperator, FrozenSubtask, Snapshotter
from tidegate.state.backend import FrozenState
from tidegate.state.keys.key_groups import KeyGroupRange
from tidegate.state.operator_state import FrozenOperatorState, Redistribution
from tidegate.state.pointers import InlineBytes
from tidegate.stream.elements import Barrier, SavepointTarget, SnapshotRequest

SUBTASK = SubtaskId(3, 0)
GROUPS = KeyGroupRange(0, 128)
LISTED = FrozenOperatorState("names", "split list", Redistribution.SPLIT, (b"a",))
PATIENCE = 10


class Unstorable(FrozenState):
    """State that cannot become bytes."""

    metadata = ()
    max_parallelism = 128
    is_released = False

    def chunks(self, key_groups=None):
        raise StateMisuse("a lock is in the state")

    def release(self):
        self.is_released = True


def frozen(number=1, keyed=None, **facts):
    operator = FrozenOperator(
        operator_id=OperatorId("op"), keyed=keyed, states=(LISTED,), source_splits=(b"split",)
    )
    return FrozenSubtask(
        **{
            "id": SUBTASK,
            "key_groups": GROUPS,
            "barrier": Barrier(number, 0.0),
            "operators": (operator,),
            "ended_inputs": frozenset({1}),
            "is_finished": False,
            "start_delay": 0.0,
            "alignment": 0.5,
            "alignment_bytes": 10,
            "sync": 0.25,
            **facts,
        }
    )


@pytest.fixture
def snapshotter():
    messages = queue.Queue()
    place = SnapshotSettings(directory=None, inline_threshold=0, limit=1000)
    subject = Snapshotter(7, place, messages.put, Permit(), Threads())
    subject.messages = messages
    yield subject
    subject.close()


def test_what_is_written_is_acknowledged_with_what_it_took(snapshotter):
    snapshotter.write(frozen(is_finished=True))
    ack = snapshotter.messages.get(timeout=PATIENCE)
    assert isinstance(ack, CheckpointAcknowledged)
    assert (ack.checkpoint_id, ack.subtask, ack.attempt, ack.is_finished) == (1, SUBTASK, 7, True)
    assert ack.snapshot.ended_inputs == {1}
    (handle,) = ack.snapshot.operators
    assert handle.source_splits == (b"split",)
    assert isinstance(handle.operator, InlineBytes)
    facts = ack.statistics
    assert (facts.alignment, facts.alignment_bytes, facts.sync) == (0.5, 10, 0.25)
    assert facts.size == ack.snapshot.size
    assert facts.incremental_size == handle.operator.size


def test_elements_in_flight_are_stored_by_channel_in_their_order(snapshotter):
    elements = ((Channel(1, 0), b"a"), (Channel(2, 1), b"x"), (Channel(1, 0), b"b"))
    snapshotter.write(frozen(in_flight=elements))
    (handle,) = snapshotter.messages.get(timeout=PATIENCE).snapshot.operators
    stored = {(each.edge, each.source): each.content.data for each in handle.in_flight}
    assert stored == {(1, 0): b"ab", (2, 1): b"x"}


def test_state_that_cannot_be_stored_is_declined_and_released(snapshotter):
    keyed = Unstorable()
    snapshotter.write(frozen(keyed=keyed))
    declined = snapshotter.messages.get(timeout=PATIENCE)
    assert isinstance(declined, CheckpointDeclined)
    assert "a lock is in the state" in str(declined.error)
    snapshotter.close()
    assert keyed.is_released


def test_a_savepoint_to_a_place_that_cannot_be_opened_is_declined_and_the_next_is_taken(
    snapshotter,
):
    nowhere = SavepointTarget("nosuchscheme://bucket", "savepoint-1", SavepointFormat.CANONICAL)
    snapshotter.write(frozen(barrier=Barrier(1, 0.0, SnapshotRequest(savepoint=nowhere))))
    declined = snapshotter.messages.get(timeout=PATIENCE)
    assert isinstance(declined, CheckpointDeclined)
    assert "nosuchscheme" in str(declined.error)
    snapshotter.write(frozen(2))
    assert isinstance(snapshotter.messages.get(timeout=PATIENCE), CheckpointAcknowledged)


def test_nothing_is_written_of_a_checkpoint_that_was_aborted(snapshotter):
    keyed = Unstorable()
    snapshotter.abort(1)
    snapshotter.write(frozen(1, keyed=keyed))
    snapshotter.write(frozen(2))
    assert snapshotter.messages.get(timeout=PATIENCE).checkpoint_id == 2
    assert keyed.is_released


class Empty(Unstorable):
    def chunks(self, key_groups=None):
        return iter(())


def test_a_file_that_the_storage_takes_after_its_checkpoint_was_aborted_is_deleted(tmp_path):
    def sizes():
        return [each.stat().st_size for each in tmp_path.rglob("*") if each.is_file()]

    messages, keyed = queue.Queue(), Empty()
    place = SnapshotSettings(directory=str(tmp_path), inline_threshold=0, limit=0)
    lease_until_it_is_written = Permit(lambda: not any(sizes()))
    subject = Snapshotter(7, place, messages.put, lease_until_it_is_written, Threads())
    subject.write(frozen(keyed=keyed))
    wait_until(lambda: keyed.is_released)
    assert sizes() == []
    assert messages.empty()
    subject.close()
