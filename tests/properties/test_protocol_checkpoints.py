"""Pending checkpoints with late, repeated, lost or foreign acknowledgements."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.effort import examples
from tests.played_jobs import acknowledgement, played_job, snapshot, state_in, states_of
from tidegate.core.errors import ProtocolViolation
from tidegate.core.modes import SavepointFormat
from tidegate.protocol.checkpoints.pending import (
    AbortReason,
    AckResult,
    PendingCheckpoint,
    PendingState,
)
from tidegate.protocol.checkpoints.retained import RetainedCheckpoints
from tidegate.protocol.messages import CheckpointAcknowledged
from tidegate.protocol.plan import plan_checkpoint
from tidegate.protocol.region import Region, RegionState
from tidegate.stream.elements import Barrier, BarrierKind, SavepointTarget, SnapshotRequest

CHOICES = st.integers(0, 1_000_000)
TARGET = SavepointTarget("/savepoints", "savepoint-1", SavepointFormat.CANONICAL)
REQUESTS = st.sampled_from(
    [
        SnapshotRequest(),
        SnapshotRequest(BarrierKind.SAVEPOINT, TARGET),
        SnapshotRequest(BarrierKind.STOP, TARGET),
        SnapshotRequest(BarrierKind.STOP),
    ]
)


class Checkpoints(RuleBasedStateMachine):
    """The bookkeeping of a coordinator, next to a store that knows which files exist."""

    @initialize(
        parallelism=st.lists(st.integers(1, 3), min_size=1, max_size=3),
        retained=st.integers(1, 3),
    )
    def begin(self, parallelism, retained):
        self.now, self.attempt, self.number = 0.0, 1, 0
        self.job = played_job(parallelism)
        self.retained = RetainedCheckpoints(retained)
        self.limit = retained
        self.pending: dict[int, PendingCheckpoint] = {}
        self.acks: list[CheckpointAcknowledged] = []
        self.said: dict[int, set] = {}
        self.files: set = set()
        self.publications: Counter = Counter()

    def pick(self, items, choice):
        return items[choice % len(items)]

    def delete(self, handles):
        named = {h for c in self.retained.own for h in states_of(c).values()}
        for handle in map(state_in, handles):
            assert handle not in named, "a file of a retained checkpoint was deleted"
            assert handle in self.files, "a file was deleted twice"
            self.files.remove(handle)

    @rule(request=REQUESTS)
    def trigger(self, request):
        region = Region(0, [0])
        region.state, region.attempt = RegionState.RUNNING, self.attempt
        plan = plan_checkpoint(self.job.graph.vertices, {0: region})
        self.number += 1
        self.said[self.number] = set()
        self.pending[self.number] = PendingCheckpoint(
            Barrier(self.number, self.now, request), plan, deadline=self.now + 10
        )

    def write(self, pending, subtask, attempt):
        """A subtask writes its part, once, and is about to acknowledge it."""
        if (subtask, attempt) in self.said[pending.checkpoint_id]:
            return
        self.said[pending.checkpoint_id].add((subtask, attempt))
        handle = (pending.checkpoint_id, subtask, attempt)
        self.files.add(handle)
        self.acks.append(acknowledgement(pending.checkpoint_id, subtask, handle, attempt=attempt))

    @precondition(lambda self: self.pending)
    @rule(which=CHOICES, who=CHOICES, stale=st.integers(0, 1))
    def a_subtask_writes_its_part(self, which, who, stale):
        pending = self.pick(list(self.pending.values()), which)
        subtask = self.pick(sorted(pending.plan.awaited), who)
        self.write(pending, subtask, pending.plan.awaited[subtask] - stale)

    @precondition(lambda self: self.pending)
    @rule(which=CHOICES, unheard=st.integers(0, 1))
    def everybody_writes_and_most_are_heard(self, which, unheard):
        collecting = [p for p in self.pending.values() if p.state is PendingState.COLLECTING]
        pending = self.pick(collecting or list(self.pending.values()), which)
        for subtask, attempt in pending.plan.awaited.items():
            self.write(pending, subtask, attempt)
        acks = [each for each in self.acks if each.checkpoint_id == pending.checkpoint_id]
        for ack in acks[unheard:]:
            self.acks.remove(ack)
            self.hear(ack)

    @precondition(lambda self: self.acks)
    @rule(which=CHOICES, again=st.booleans())
    def an_acknowledgement_arrives(self, which, again):
        ack = self.pick(self.acks, which)
        if not again:
            self.acks.remove(ack)
        self.hear(ack)

    def hear(self, ack):
        pending = self.pending[ack.checkpoint_id]
        if pending.state is PendingState.ABORTED:
            if state_in(ack.snapshot) in self.files:
                self.delete([ack.snapshot])
            return
        before = pending.missing
        if pending.plan.awaited[ack.subtask] != ack.attempt:
            expected = AckResult.UNKNOWN_SUBTASK
        elif ack.subtask not in before:
            expected = AckResult.DUPLICATE
        else:
            expected = AckResult.ACCEPTED
        result = pending.acknowledge(ack)
        assert result is expected
        heard = {ack.subtask} if result is AckResult.ACCEPTED else set()
        assert pending.missing == before - heard
        if result is AckResult.UNKNOWN_SUBTASK and state_in(ack.snapshot) in self.files:
            self.delete([ack.snapshot])

    @precondition(lambda self: any(p.missing for p in self.pending.values()))
    @rule(which=CHOICES)
    def nobody_can_publish_what_is_incomplete(self, which):
        pending = self.pick([p for p in self.pending.values() if p.missing], which)
        with pytest.raises(ProtocolViolation):
            pending.begin_publication(self.job, self.now)

    @precondition(lambda self: self.acks)
    @rule(which=CHOICES)
    def an_acknowledgement_is_lost(self, which):
        self.acks.remove(self.pick(self.acks, which))

    @precondition(lambda self: any(p.is_ready for p in self.pending.values()))
    @rule(which=CHOICES, happens=st.sampled_from([True, True, False]))
    def a_checkpoint_is_published(self, which, happens):
        self.publish(self.pick([p for p in self.pending.values() if p.is_ready], which), happens)

    @rule(request=REQUESTS)
    def a_checkpoint_succeeds_without_trouble(self, request):
        self.trigger(request)
        pending = self.pending[self.number]
        for subtask, attempt in pending.plan.awaited.items():
            self.write(pending, subtask, attempt)
            self.hear(self.acks.pop())
        self.publish(pending, True)

    def publish(self, pending, happens):
        completed = pending.begin_publication(self.job, self.now)
        assert states_of(completed).keys() == pending.plan.awaited.keys()
        assert set(states_of(completed).values()) <= self.files
        assert pending.abort(AbortReason.REGION_FAILED) is None, "aborted while being published"
        if not happens:
            self.delete(pending.not_published())
            return
        pending.published()
        self.publications[pending.checkpoint_id] += 1
        self.retained.add(completed)
        for subsumed in self.retained.trim():
            assert subsumed.metadata.kind is BarrierKind.CHECKPOINT, "the user's was discarded"
            self.delete(snapshot(*each) for each in states_of(subsumed).items())

    @precondition(lambda self: self.pending)
    @rule(which=CHOICES, reason=st.sampled_from(list(AbortReason)))
    def a_checkpoint_is_aborted(self, which, reason):
        pending = self.pick(list(self.pending.values()), which)
        was_collecting = pending.state is PendingState.COLLECTING
        handles = pending.abort(reason)
        assert (handles is not None) == was_collecting
        self.delete(handles or ())

    @rule(seconds=st.sampled_from([0.5, 1.0, 6.0]))
    def time_passes(self, seconds):
        self.now += seconds
        for pending in self.pending.values():
            if self.now >= pending.deadline:
                self.delete(pending.abort(AbortReason.EXPIRED) or ())

    @rule()
    def the_region_fails(self):
        self.attempt += 1
        for pending in self.pending.values():
            self.delete(pending.abort(AbortReason.REGION_FAILED) or ())

    @invariant()
    def publication_happens_at_most_once_and_only_with_all_acknowledgements(self):
        assert all(count == 1 for count in self.publications.values())
        for number in self.publications:
            pending = self.pending[number]
            assert pending.state is PendingState.COMPLETED
            assert not pending.missing

    @invariant()
    def the_newest_checkpoints_are_kept_with_all_their_files(self):
        requests = {n: self.pending[n].barrier.request for n in self.publications}
        points = [n for n, each in requests.items() if each.kind is not BarrierKind.SAVEPOINT]
        newest = sorted(points)[-self.limit :]
        latest = self.retained.restore_point
        assert (None if latest is None else latest.checkpoint_id) == max(points, default=None)
        own = [each.checkpoint_id for each in self.retained.own]
        assert own == [n for n in newest if requests[n].savepoint is None]
        for each in self.retained.own:
            assert set(states_of(each).values()) <= self.files


Checkpoints.TestCase.settings = examples(30, stateful_step_count=40)
TestCheckpoints = Checkpoints.TestCase
