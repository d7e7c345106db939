import numpy as np
import pyarrow as pa
import pytest

from tidegate.state import key_words
from tidegate.state.key_index import KeyIndex, can_be_indexed
from tidegate.state.stable_hash import stable_hash


def slots_of(index, *columns):
    return index.find_or_add([pa.array(column) for column in columns]).tolist()


def test_keys_are_numbered_as_they_first_appear():
    index = KeyIndex([pa.string()])
    assert slots_of(index, ["b", "a", "b"]) == [0, 1, 0]
    assert slots_of(index, ["c", "a", "b"]) == [2, 1, 0]
    assert len(index) == 3


def test_null_is_a_key_like_any_other():
    index = KeyIndex([pa.int64()])
    assert slots_of(index, [0, None, 5, None]) == [0, 2, 1, 2]
    assert slots_of(index, [None, 0, 7]) == [2, 0, 3]
    assert index.keys().take(np.arange(4))[0].to_pylist() == [0, 5, None, 7]


def test_the_zeros_of_floats_are_one_key_and_so_are_all_nans():
    index = KeyIndex([pa.float64()])
    assert slots_of(index, [0.0, -0.0, float("nan"), -float("nan"), 1.5]) == [0, 0, 1, 1, 2]


@pytest.mark.parametrize("lengths", [(0, 11, 12, 13, 40), (13,), (12,)])
def test_text_of_any_length_is_told_apart(lengths):
    keys = [prefix + "x" * (length - 1) for length in lengths for prefix in ("a", "b") if length]
    index = KeyIndex([pa.string()])
    first = slots_of(index, [*keys, ""])
    assert sorted(first) == list(range(len(keys) + 1))
    assert slots_of(index, ["", *keys[::-1]]) == first[::-1]


def test_text_with_a_zero_byte_is_not_the_text_without():
    index = KeyIndex([pa.string()])
    assert slots_of(index, ["a", "a\0", "a\0\0", ""]) == [0, 1, 2, 3]


def test_keys_whose_digests_collide_are_told_apart(monkeypatch):
    monkeypatch.setattr(key_words, "digest", lambda column: np.full(len(column), 7, np.uint64))
    keys = [f"same length {i:03}" for i in range(50)]
    index = KeyIndex([pa.string()])
    first = slots_of(index, keys[:30] + keys[:30])
    assert first[:30] == first[30:]
    again = slots_of(index, keys)
    assert again[:30] == first[:30]
    assert sorted(again) == list(range(50))
    assert index.keys().take(np.array(again))[0].to_pylist() == keys


def test_a_dictionary_is_looked_up_by_entries_that_occur():
    index = KeyIndex([pa.string()])
    column = pa.DictionaryArray.from_arrays(
        pa.array([2, 0, None, 2]), pa.array(["a", "never", "c"])
    )
    assert index.find_or_add([column]).tolist() == [1, 0, 2, 1]
    assert len(index) == 3
    assert slots_of(index, ["c", None, "a"]) == [1, 2, 0]


@pytest.mark.parametrize("physical", [pa.large_string(), pa.string_view()])
def test_the_same_text_in_another_physical_type_is_the_same_key(physical):
    index = KeyIndex([pa.string()])
    slots_of(index, ["a", "b"])
    assert index.find_or_add([pa.array(["b", "a"], physical)]).tolist() == [1, 0]


def test_keys_of_several_columns_are_found_by_all_of_them():
    index = KeyIndex([pa.string(), pa.int64(), pa.bool_()])
    first = slots_of(index, ["a", "a", "b", "a"], [1, 2, 1, 1], [True, True, True, None])
    assert sorted(first) == [0, 1, 2, 3]
    assert slots_of(index, ["b", "a"], [1, 1], [True, True]) == [first[2], first[0]]
    keys = [column.to_pylist() for column in index.keys().take(np.array(first))]
    assert list(zip(*keys, strict=True)) == [
        ("a", 1, True),
        ("a", 2, True),
        ("b", 1, True),
        ("a", 1, None),
    ]
    assert index.keys().hashes()[first].tolist() == [
        stable_hash(key) for key in zip(*keys, strict=True)
    ]


def test_frozen_keys_do_not_see_later_ones():
    index = KeyIndex([pa.int64(), pa.int64()])
    slots_of(index, [1, 2], [1, 2])
    frozen = index.keys()
    slots_of(index, list(range(5000)), list(range(5000)))
    assert len(frozen.hashes()) == 2


def test_many_keys_in_many_batches_keep_their_numbers():
    rng = np.random.default_rng(0)
    index = KeyIndex([pa.string()])
    known = {}
    for _ in range(30):
        keys = [f"key-{i}" for i in rng.integers(0, 20_000, 3_000)]
        for key, slot in zip(keys, slots_of(index, keys), strict=True):
            assert known.setdefault(key, slot) == slot
    assert sorted(known.values()) == list(range(len(index)))
    stored = index.keys().take(np.arange(len(index)))[0].to_pylist()
    assert {key: slot for slot, key in enumerate(stored)} == known


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
