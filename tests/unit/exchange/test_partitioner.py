from typing import ClassVar

import numpy as np
import pytest

from tidegate.common import Types
from tidegate.core.errors import UserError
from tidegate.exchange.partitioner import create_partitioner, rescale_targets
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
from tidegate.operators.functions import KeySelector
from tidegate.operators.stateless import MapOperator
from tidegate.state.keys.selection import select_key
from tidegate.stream.batch import Batch
from tidegate.testing.harness import OperatorHarness
from tidegate.types.arrow import arrow_format


def partitioner(partitioning, *, subtask=0, parallelism=1, targets=3):
    return create_partitioner(
        partitioning, subtask=subtask, parallelism=parallelism, targets=targets, key_groups=128
    )


def dealt(chosen, *batches):
    """The records that each target gets."""
    result = {}
    for records in batches:
        for target, share in chosen.split(Batch.of_records(list(records))):
            result.setdefault(target, []).extend(share.records)
    return result


def test_forward_stays_with_its_subtask():
    chosen = partitioner(Forward(), subtask=2, parallelism=3)
    assert dealt(chosen, "ab") == {2: ["a", "b"]}


def test_global_goes_to_the_first():
    assert dealt(partitioner(Global(), subtask=1, parallelism=2), "ab") == {0: ["a", "b"]}


def test_broadcast_goes_to_all_without_copying():
    batch = Batch.of_records(["a"])
    shares = partitioner(Broadcast()).split(batch)
    assert [target for target, _ in shares] == [0, 1, 2]
    assert all(share is batch for _, share in shares)


def test_rebalance_continues_where_the_last_batch_ended():
    chosen = partitioner(Rebalance(), subtask=1, parallelism=2)
    assert dealt(chosen, "ab", "c", "defg") == {
        1: ["a", "d", "g"],
        2: ["b", "e"],
        0: ["c", "f"],
    }


def test_one_target_gets_everything_as_it_is():
    batch = Batch.of_records(["a", "b"])
    for partitioning in (Rebalance(), Rescale(), Shuffle(), ByKeyGroup(select_key(abs))):
        assert list(partitioner(partitioning, targets=1).split(batch)) == [(0, batch)]


@pytest.mark.parametrize(
    ("senders", "targets", "drawn"),
    [
        (2, 4, [[0, 1], [2, 3]]),
        (2, 5, [[0, 1, 2], [3, 4]]),
        (4, 2, [[0], [0], [1], [1]]),
        (5, 2, [[0], [0], [1], [1], [1]]),
        (3, 3, [[0], [1], [2]]),
        (1, 3, [[0, 1, 2]]),
        (3, 1, [[0], [0], [0]]),
    ],
)
def test_rescale_draws_its_channels_like_flink(senders, targets, drawn):
    assert [list(rescale_targets(s, senders, targets)) for s in range(senders)] == drawn


def test_shuffle_spreads_by_chance():
    result = dealt(partitioner(Shuffle()), range(3000))
    assert all(800 < len(records) < 1200 for records in result.values())


def test_a_custom_partitioner_gets_the_key_and_the_number_of_targets():
    asked = []

    def choose(key, targets):
        asked.append((key, targets))
        return len(key) % targets

    chosen = partitioner(Custom(choose, select_key(str.upper)))
    assert dealt(chosen, ["a", "bb", "ccc"]) == {1: ["a"], 2: ["bb"], 0: ["ccc"]}
    assert asked == [("A", 3), ("BB", 3), ("CCC", 3)]


def test_a_custom_partitioner_is_asked_even_when_there_is_but_one_target():
    asked = []
    chosen = partitioner(Custom(lambda key, n: asked.append(key) or 0, select_key(str)), targets=1)
    assert dealt(chosen, "ab") == {0: ["a", "b"]}
    assert asked == ["a", "b"]


@pytest.mark.parametrize("wrong", [-1, 3])
def test_a_target_that_does_not_exist_is_refused_with_its_key(wrong):
    chosen = partitioner(Custom(lambda key, n: wrong if key == "b" else 0, select_key(str)))
    with pytest.raises(UserError, match=rf"target {wrong} for the key 'b'.*0\.\.2"):
        dealt(chosen, "abc")


def test_a_key_selector_is_opened_and_closed_with_its_channel():
    class Selector(KeySelector):
        events: ClassVar = []

        def open(self, runtime_context):
            self.events.append(("open", runtime_context.get_index_of_this_subtask()))

        def get_key(self, value):
            return value

        def close(self):
            self.events.append("close")

    harness = OperatorHarness(MapOperator(abs), parallelism=4, subtask=3)
    chosen = partitioner(ByKeyGroup(select_key(Selector())))
    chosen.open(harness.context)
    dealt(chosen, "ab")
    chosen.close()
    assert Selector.events == [("open", 3), "close"]


def test_a_share_of_everything_is_the_batch_itself():
    batch = Batch(records=["k", "k"], timestamps=np.array([1, 2]))
    ((_, share),) = partitioner(ByKeyGroup(select_key(str))).split(batch)
    assert share is batch


@pytest.mark.parametrize("is_columnar", [False, True])
@pytest.mark.parametrize("count", [0, 1, 100, 8192, 8193])
def test_few_and_many_records_keep_their_order_and_their_times(count, is_columnar):
    format = arrow_format(Types.TUPLE([Types.STRING(), Types.LONG()]))
    records = [(f"k{i % 10}", i) for i in range(count)]
    batch = Batch(records=records, format=format, timestamps=np.arange(count))
    if is_columnar:
        batch = Batch(columns=batch.columns, format=format, timestamps=batch.timestamps)
    shares = dict(partitioner(ByKeyGroup(select_key(lambda record: record[0]))).split(batch))
    for share in shares.values():
        assert [number for _, number in share.records] == share.timestamps.tolist()
        assert share.timestamps.tolist() == sorted(share.timestamps)
    owners = {key: target for target, share in shares.items() for key, _ in share.records}
    assert all(
        owners[key] == target for target, share in shares.items() for key, _ in share.records
    )
    assert sorted(r for share in shares.values() for r in share.records) == sorted(records)
