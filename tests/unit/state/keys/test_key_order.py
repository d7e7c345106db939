import random

import numpy as np

from tidegate.state.keys.key_order import KeyOrder, in_parts
from tidegate.state.keys.key_rows import ObjectKeys
from tidegate.state.keys.stable_hash import stable_hash


def as_entries(parts, keys):
    """(place, key group, key) of everything in the parts."""
    return [
        (place, group, keys[place])
        for part in parts
        for place, group in zip(part.places.tolist(), part.groups.tolist(), strict=True)
    ]


def test_every_slot_is_in_one_part_with_its_key_group():
    places = ObjectKeys()
    seen = []
    for count in (1, 5, 3_000, 3_010, 20_000, 20_001, 41_000):
        places.find_or_add([f"key-{i}" for i in range(count)])
        parts = places.freeze().ordered(16)
        keys = places.values()
        entries = as_entries(parts, keys)
        assert sorted(place for place, _, _ in entries) == list(range(count))
        assert all(group == stable_hash(key) % 16 for _, group, key in entries)
        for part in parts:
            assert part.groups.tolist() == sorted(part.groups.tolist())
        seen.append(parts)
    assert max(map(len, seen)) < 12


def test_keys_that_were_in_order_before_are_not_put_in_order_again():
    asked = []

    def order(start, stop):
        asked.append((start, stop))
        hashes = np.array([random.getrandbits(64) for _ in range(stop - start)], np.uint64)
        return in_parts(hashes, start, 8, 100, lambda places: b"")

    kept = KeyOrder()
    for count in (1_000, 1_000, 1_010, 1_016, 1_017, 2_500):
        parts = kept.parts(count, order)
        assert sorted(place for part in parts for place in part.places.tolist()) == list(
            range(count)
        )
    assert asked == [(0, 1_000), (1_000, 1_010), (1_000, 1_016), (1_016, 1_017), (0, 2_500)]


def test_an_older_snapshot_that_is_read_later_sees_its_own_keys_only():
    places = ObjectKeys()
    places.find_or_add(list(range(100)))
    older = places.freeze()
    places.find_or_add(list(range(150)))
    newer = places.freeze()
    assert len(as_entries(newer.ordered(4), places.values())) == 150
    assert sorted(s for s, _, _ in as_entries(older.ordered(4), places.values())) == [*range(100)]
    assert len(as_entries(newer.ordered(4), places.values())) == 150
