"""Which subtask of the next operator a record gets to."""

from collections import Counter

import pytest

from tests.api.results import collect, in_any_order
from tidegate.common import Types
from tidegate.datastream import KeySelector, MapFunction, Partitioner
from tidegate.testing.environments import mini_environment


class WithSubtask(MapFunction):
    """(subtask, record)."""

    def open(self, runtime_context):
        self.subtask = runtime_context.get_index_of_this_subtask()

    def map(self, value):
        return self.subtask, value


def places(stream):
    """The records by the subtask of the operator behind the stream that they got to."""
    found = {}
    for subtask, record in collect(stream.map(WithSubtask())):
        found.setdefault(subtask, []).append(record)
    return found


@pytest.fixture
def env():
    return mini_environment(parallelism=3)


def test_rebalance_deals_the_records_out_in_turn(env):
    found = places(env.from_collection(list(range(9))).rebalance())
    assert {subtask: len(records) for subtask, records in found.items()} == {0: 3, 1: 3, 2: 3}
    assert sorted(record for records in found.values() for record in records) == list(range(9))


def test_rescale_deals_the_records_out_in_turn_to_the_senders_share(env):
    found = places(env.from_collection(list(range(6))).rescale())
    assert {subtask: len(records) for subtask, records in found.items()} == {0: 2, 1: 2, 2: 2}


def test_shuffle_sends_every_record_somewhere(env):
    found = places(env.from_collection(list(range(300))).shuffle())
    assert sorted(record for records in found.values() for record in records) == list(range(300))
    assert len(found) == 3


def test_broadcast_sends_every_record_everywhere(env):
    found = places(env.from_collection(["a", "b"]).broadcast())
    assert found == {0: ["a", "b"], 1: ["a", "b"], 2: ["a", "b"]}


def test_global_sends_all_records_to_the_first_subtask(env):
    found = places(env.from_sequence(1, 6).global_())
    assert {subtask: sorted(records) for subtask, records in found.items()} == {
        0: [1, 2, 3, 4, 5, 6]
    }


def test_forward_keeps_records_in_their_subtask(env):
    found = places(env.from_sequence(1, 6).map(WithSubtask()).disable_chaining().forward())
    assert all(subtask == before for subtask, records in found.items() for before, _ in records)


def test_a_partitioner_of_the_user_chooses_by_key(env):
    class ByLength(Partitioner):
        def open(self, runtime_context):
            self.step = 1

        def partition(self, key, num_partitions):
            return key * self.step % num_partitions

    class Length(KeySelector):
        def get_key(self, value):
            return len(value)

    words = env.from_collection(["a", "bb", "ccc", "dddd"])
    expected = {0: ["ccc"], 1: ["a", "dddd"], 2: ["bb"]}
    assert places(words.partition_custom(ByLength(), Length())) == expected
    assert places(words.partition_custom(lambda key, n: key % n, len)) == expected


def test_a_key_stays_in_one_subtask_and_keys_are_spread(env):
    found = places(env.from_collection([n % 50 for n in range(500)]).key_by(lambda n: n))
    owners = Counter(key for records in found.values() for key in set(records))
    assert set(owners.values()) == {1}
    assert len(found) == 3


def test_a_typed_key_gets_to_the_same_subtask_as_an_untyped_one(env):
    words = [f"word-{n}" for n in range(40)]
    typed = places(env.from_collection(words, Types.STRING()).key_by(lambda word: word))
    untyped = places(env.from_collection(words).key_by(lambda word: word))
    assert {k: sorted(v) for k, v in typed.items()} == {k: sorted(v) for k, v in untyped.items()}


def test_operators_of_different_parallelism_follow_each_other(env):
    stream = (
        env.from_sequence(1, 20)
        .set_parallelism(2)
        .map(lambda n: n + 1)
        .set_parallelism(3)
        .map(lambda n: n - 1)
        .set_parallelism(1)
    )
    assert in_any_order(stream) == list(range(1, 21))
