"""Every record reaches its target, once."""

from collections import Counter
from typing import NamedTuple

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tests.effort import examples
from tests.properties.strategies import batches, in_dictionaries
from tidegate.exchange.partitioner import create_partitioner
from tidegate.graph.job_graph import Edge
from tidegate.graph.partitioning import (
    Broadcast,
    ByKeyGroup,
    Custom,
    Forward,
    Global,
    Rebalance,
    Rescale,
    Shuffle,
)
from tidegate.protocol.packet import Channel
from tidegate.slot.outbox import channels_into, targets_of
from tidegate.state.keys.key_groups import subtask_of
from tidegate.state.keys.selection import select_key
from tidegate.state.keys.stable_hash import stable_hash
from tidegate.stream.batch import Batch
from tidegate.types.arrow import arrow_format
from tidegate.types.typeinfo import Types

PAIR = Types.TUPLE([Types.STRING(), Types.LONG()])
PAIRS = st.tuples(st.text(max_size=3), st.integers(-5, 5))


def key_modulo(key, targets):
    return key % targets


def second(pair):
    return pair[1]


class Place(NamedTuple):
    """A partitioning between given parallelisms, seen by one sender."""

    partitioning: object
    senders: int
    targets: int
    subtask: int
    key_groups: int

    @property
    def edge(self):
        return Edge(
            id=0,
            source=0,
            source_operator=0,
            side_tag=None,
            target=1,
            input_index=0,
            partitioning=self.partitioning,
            format=None,
        )

    def create(self):
        return create_partitioner(
            self.partitioning,
            subtask=self.subtask,
            parallelism=self.senders,
            targets=self.targets,
            key_groups=self.key_groups,
        )


@st.composite
def places(draw, *kinds):
    partitioning = draw(st.sampled_from(kinds or EVERY_PARTITIONING))
    senders = draw(st.integers(1, 9))
    targets = senders if isinstance(partitioning, Forward) else draw(st.integers(1, 9))
    key_groups = draw(st.integers(targets, 300))
    return Place(partitioning, senders, targets, draw(st.integers(0, senders - 1)), key_groups)


EVERY_PARTITIONING = (
    Forward(),
    Rebalance(),
    Rescale(),
    Shuffle(),
    Broadcast(),
    Global(),
    ByKeyGroup(select_key(second)),
    ByKeyGroup(select_key(0, PAIR)),
    ByKeyGroup(select_key((0, 1), PAIR)),
    Custom(key_modulo, select_key(1, PAIR)),
)


@st.composite
def pair_batches(draw):
    """Pairs as objects, columns or dictionaries; each timestamp is the record's own number."""
    records = draw(st.lists(PAIRS, min_size=1, max_size=30))
    stamps = np.arange(len(records), dtype=np.int64)
    form = draw(st.sampled_from(["objects", "typed", "columns", "dictionaries"]))
    if form == "objects":
        return Batch(records=records, timestamps=stamps)
    batch = Batch(records=records, format=arrow_format(PAIR), timestamps=stamps)
    if form == "typed":
        return batch
    columns = batch.columns if form == "columns" else in_dictionaries(batch.columns)
    return Batch(columns=columns, format=batch.format, timestamps=stamps)


def numbered(share):
    """The records of a share with their numbers."""
    return list(zip(share.timestamps.tolist(), share.records, strict=True))


@given(places(), st.lists(pair_batches(), min_size=1, max_size=3))
@examples(100)
def test_each_record_goes_to_exactly_one_target_or_to_all_of_a_broadcast(place, stream):
    partitioner = place.create()
    copies = place.targets if isinstance(place.partitioning, Broadcast) else 1
    for batch in stream:
        shares = list(partitioner.split(batch))
        arrived = Counter(pair for _, share in shares for pair in numbered(share))
        assert arrived == Counter(numbered(batch) * copies)
        assert len({target for target, _ in shares}) == len(shares)
        assert all(len(share) for _, share in shares)
        assert all(share.format == batch.format for _, share in shares)


@given(places(), pair_batches())
@examples(100)
def test_order_is_kept_within_a_share(place, batch):
    for _, share in place.create().split(batch):
        numbers = share.timestamps.tolist()
        assert numbers == sorted(numbers)


@given(places(), st.lists(pair_batches(), max_size=3))
@examples(70)
def test_records_leave_only_by_channels_that_both_sides_know(place, stream):
    partitioner = place.create()
    reachable = targets_of(place.edge, place.subtask, place.senders, place.targets)
    for batch in stream:
        assert {target for target, _ in partitioner.split(batch)} <= set(reachable)


@given(places())
@examples(100)
def test_both_ends_of_an_edge_draw_the_same_channels(place):
    edge, senders, targets = place.edge, place.senders, place.targets
    by_sender = {
        (sender, target)
        for sender in range(senders)
        for target in targets_of(edge, sender, senders, targets)
    }
    by_target = {
        (channel.source, target)
        for target in range(targets)
        for channel in channels_into(edge, target, senders, targets)
    }
    assert by_sender == by_target
    assert all(0 <= target < targets for _, target in by_sender)
    assert channels_into(edge, 0, senders, targets)[0] == Channel(0, 0)


@given(places(Rescale()))
@examples(70)
def test_rescale_leaves_nobody_out_and_spreads_channels_evenly(place):
    edge, senders, targets = place.edge, place.senders, place.targets
    out = [len(targets_of(edge, s, senders, targets)) for s in range(senders)]
    into = [len(channels_into(edge, t, senders, targets)) for t in range(targets)]
    assert min(out) >= 1 and min(into) >= 1
    assert max(out) - min(out) <= 1 and max(into) - min(into) <= 1
    assert sum(out) == max(senders, targets)


@given(places(Rebalance(), Rescale()), st.lists(pair_batches(), min_size=1, max_size=5))
@examples(50)
def test_round_robin_deals_evenly_over_batches(place, stream):
    partitioner = place.create()
    dealt = Counter(
        dict.fromkeys(targets_of(place.edge, place.subtask, place.senders, place.targets), 0)
    )
    for batch in stream:
        for target, share in partitioner.split(batch):
            dealt[target] += len(share)
    assert max(dealt.values()) - min(dealt.values()) <= 1


@given(st.integers(2, 9), st.data())
def test_senders_of_a_rebalance_do_not_all_begin_at_the_same_target(targets, data):
    firsts = set()
    for subtask in range(targets):
        place = Place(Rebalance(), targets, targets, subtask, 128)
        ((first, _),) = place.create().split(Batch.of_records([data.draw(PAIRS)]))
        firsts.add(first)
    assert firsts == set(range(targets))


def owner_of(key, place):
    group = stable_hash(key) % place.key_groups
    return subtask_of(group, place.targets, place.key_groups)


@given(
    places(
        ByKeyGroup(select_key(second)),
        ByKeyGroup(select_key(0, PAIR)),
        ByKeyGroup(select_key("f1", PAIR)),
        ByKeyGroup(select_key((1, 0), PAIR)),
        ByKeyGroup(select_key(lambda pair: pair[0], PAIR)),
    ),
    pair_batches(),
)
@examples(100)
def test_a_keyed_record_goes_to_the_owner_of_its_key_group(place, batch):
    if batch.format is None and isinstance(place.partitioning.key.columns, int | tuple):
        batch = Batch(records=batch.records, format=arrow_format(PAIR), timestamps=batch.timestamps)
    for target, share in place.create().split(batch):
        for record in share.records:
            assert owner_of(place.partitioning.key.function(record), place) == target


@given(places(ByKeyGroup(select_key(lambda record: record))), batches(None))
@examples(25)
def test_single_values_are_keys_too(place, batch):
    hashable = [r for r in batch.records if isinstance(r, int | str | bytes | None)]
    batch = Batch.of_records(hashable)
    for target, share in place.create().split(batch):
        assert {owner_of(record, place) for record in share.records} <= {target}


@given(places(Custom(key_modulo, select_key(second))), pair_batches())
@examples(25)
def test_a_custom_partitioner_decides(place, batch):
    for target, share in place.create().split(batch):
        assert {record[1] % place.targets for record in share.records} == {target}
