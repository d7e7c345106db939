import numpy as np
import pyarrow as pa
import pytest

from tidegate.state.keys import key_words
from tidegate.state.keys.key_index import KeyIndex, can_be_indexed
from tidegate.state.keys.stable_hash import stable_hash


class Numbered:
    """An index whose slots are shown in the order in which they first appear."""

    def __init__(self, *kinds):
        self.index = KeyIndex(kinds, is_tuple=len(kinds) > 1)
        self.shown = {}

    def __call__(self, *columns):
        arrays = [c if isinstance(c, pa.Array) else pa.array(c) for c in columns]
        slots = self.index.find_or_add(arrays)
        for stored, asked in zip(self.index.keys().take(slots), arrays, strict=True):
            assert repr(stored.to_pylist()) == repr(asked.to_pylist()).replace("-0.0", "0.0")
        return [self.shown.setdefault(slot, len(self.shown)) for slot in slots.tolist()]


def test_each_key_has_one_number():
    numbers = Numbered(pa.string())
    assert numbers(["b", "a", "b"]) == [0, 1, 0]
    assert numbers(["c", "a", "b"]) == [2, 1, 0]
    assert sorted(numbers.shown) == [0, 1, 2]


def test_null_is_a_key_like_any_other():
    numbers = Numbered(pa.int64())
    assert numbers([0, None, 5, None]) == [0, 1, 2, 1]
    assert numbers([None, 0, 7]) == [1, 0, 3]
    assert len(numbers.index) == 4


@pytest.mark.parametrize(
    ("kind", "zero", "more"),
    [
        (pa.int64(), 0, range(1, 2000)),
        (pa.bool_(), False, [True]),
        (pa.string(), "", [f"key {i}" for i in range(2000)]),
    ],
)
@pytest.mark.parametrize("is_first", [True, False])
def test_null_is_not_zero_however_many_keys_there_are(kind, zero, more, is_first):
    numbers = Numbered(kind)
    keys = [zero, None] if is_first else [None]
    numbers(pa.array(keys, kind))
    numbers(pa.array(more, kind))
    found = numbers(pa.array([None, zero], kind))
    assert sorted(found) == ([0, 1] if is_first else [0, len(more) + 1])


def test_the_zeros_of_floats_are_one_key_and_so_are_all_nans():
    numbers = Numbered(pa.float64())
    assert numbers([0.0, -0.0, float("nan"), -float("nan"), 1.5]) == [0, 0, 1, 1, 2]


@pytest.mark.parametrize("lengths", [(0, 11, 12, 13, 40), (13,), (12,)])
def test_text_of_any_length_is_told_apart(lengths):
    keys = [prefix + "x" * (length - 1) for length in lengths for prefix in ("a", "b") if length]
    numbers = Numbered(pa.string())
    first = numbers([*keys, ""])
    assert first == list(range(len(keys) + 1))
    assert numbers(["", *keys[::-1]]) == first[::-1]


def test_text_with_a_zero_byte_is_not_the_text_without():
    assert Numbered(pa.string())(["a", "a\0", "a\0\0", ""]) == [0, 1, 2, 3]


def test_keys_whose_digests_collide_are_told_apart(monkeypatch):
    monkeypatch.setattr(key_words, "digest", lambda column: np.full(len(column), 7, np.uint64))
    keys = [f"same length {i:03}" for i in range(50)]
    numbers = Numbered(pa.string())
    assert numbers(keys[:30] + keys[:30]) == [*range(30), *range(30)]
    assert numbers(keys) == list(range(50))
    assert len(numbers.index) == 50


@pytest.mark.parametrize("kind", [pa.string(), pa.binary()])
def test_few_keys_keep_their_numbers_in_batches_of_any_size(kind):
    keys = pa.array(["a", "b", "", "a long key: 20 bytes"]).cast(kind)
    numbers = Numbered(kind)
    first = numbers(keys)
    assert numbers(keys.take(pa.array([3, 2, 1, 0] * 20))) == first[::-1] * 20
    many = pa.array([*(["a", "b"] * 20), "new", None, "new"]).cast(kind)
    assert numbers(many) == [*([0, 1] * 20), 4, 5, 4]
    assert numbers(pa.array([None, "new", "b"] * 20).cast(kind)) == [5, 4, 1] * 20
    assert numbers(keys) == first
    assert len(numbers.index) == 6


def test_keys_whose_digests_collide_are_told_apart_however_many_there_are(monkeypatch):
    monkeypatch.setattr(key_words, "digest", lambda column: np.full(len(column), 7, np.uint64))
    numbers = Numbered(pa.string())
    first = numbers(["same length 1", "same length 2", ""])
    more = [f"key {i}" for i in range(2000)]
    later = numbers(more)
    assert numbers(["same length 1", "same length 2", "", *more]) == [*first, *later]


def test_keys_whose_digests_collide_keep_their_numbers_in_large_batches(monkeypatch):
    monkeypatch.setattr(key_words, "digest", lambda column: np.full(len(column), 7, np.uint64))
    keys = [f"same length {i:03}" for i in range(9)]
    numbers = Numbered(pa.string())
    assert numbers(keys) == list(range(9))
    assert numbers(keys[::-1] * 10) == list(range(9))[::-1] * 10


def test_a_dictionary_is_looked_up_by_entries_that_occur():
    numbers = Numbered(pa.string())
    column = pa.DictionaryArray.from_arrays(
        pa.array([2, 0, None, 2]), pa.array(["a", "never", "c"])
    )
    assert numbers(column) == [0, 1, 2, 0]
    assert len(numbers.index) == 3
    assert numbers(["c", None, "a"]) == [0, 2, 1]


def test_null_may_be_an_entry_of_a_dictionary():
    numbers = Numbered(pa.string())
    column = pa.DictionaryArray.from_arrays(pa.array([0, 1, 0]), pa.array(["a", None]))
    assert numbers(column) == [0, 1, 0]
    assert numbers(["a", None]) == [0, 1]


@pytest.mark.parametrize("physical", [pa.large_string(), pa.string_view()])
def test_the_same_text_in_another_physical_type_is_the_same_key(physical):
    numbers = Numbered(pa.string())
    numbers(["a", "b"])
    assert numbers(pa.array(["b", "a"], physical)) == [1, 0]


def test_keys_of_several_columns_are_found_by_all_of_them():
    numbers = Numbered(pa.string(), pa.int64(), pa.bool_())
    parts = ["a", "a", "b", "a"], [1, 2, 1, 1], [True, True, True, None]
    assert numbers(*parts) == [0, 1, 2, 3]
    assert numbers(["b", "a"], [1, 1], [True, True]) == [2, 0]
    hashes = numbers.index.keys().hashes()[list(numbers.shown)].tolist()
    assert hashes == [stable_hash(key) for key in zip(*parts, strict=True)]


def test_a_tuple_of_one_column_hashes_like_a_tuple():
    index = KeyIndex([pa.string()], is_tuple=True)
    index.find_or_add([pa.array(["a"])])
    assert index.keys().hashes().tolist() == [stable_hash(("a",))]


def test_frozen_keys_do_not_see_later_ones():
    numbers = Numbered(pa.int64(), pa.int64())
    numbers([1, 2], [1, 2])
    frozen = numbers.index.keys()
    numbers(range(5000), range(5000))
    assert len(frozen.hashes()) == 2


def test_many_keys_in_many_batches_keep_their_numbers():
    rng = np.random.default_rng(0)
    numbers = Numbered(pa.string())
    known = {}
    for _ in range(30):
        keys = [f"key-{i}" for i in rng.integers(0, 20_000, 3_000)]
        for key, slot in zip(keys, numbers(keys), strict=True):
            assert known.setdefault(key, slot) == slot
    assert sorted(numbers.shown) == list(range(len(known)))


@pytest.mark.parametrize(
    ("kinds", "possible"),
    [
        ([pa.string()], True),
        ([pa.decimal128(5, 2), pa.timestamp("us"), pa.binary(), pa.uint64()], True),
        ([pa.list_(pa.int64())], False),
        ([pa.struct([("a", pa.int64())])], False),
        ([pa.decimal256(50, 2)], False),
        ([pa.int64()] * 5, False),
        ([], False),
    ],
)
def test_what_cannot_be_indexed_is_known_before(kinds, possible):
    assert can_be_indexed(kinds) is possible
