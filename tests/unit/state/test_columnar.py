import time

import numpy as np
import pyarrow as pa
import pytest

from tidegate.core.errors import StateMisuse, StateTypeChanged
from tidegate.state.column_store import ColumnStore
from tidegate.state.columnar import ColumnarState, NumberColumn, ValueColumn
from tidegate.state.key_groups import KeyGroupRange, key_group_of, range_of
from tidegate.state.key_index import KeyIndex
from tidegate.state.stable_hash import stable_hash

GROUPS = 16


ALL = KeyGroupRange(0, GROUPS)


def a_state(key_groups=ALL, declaration="sums", groups=GROUPS):
    columns = {"sum": NumberColumn(np.int64), "name": ValueColumn(pa.string())}
    keys = KeyIndex([pa.string()], is_tuple=False)
    return ColumnarState("s", declaration, keys, columns, key_groups, groups)


def put(state, keys, sums):
    slots = state.slots_of([pa.array(keys)])
    state.columns["sum"].values[slots] = sums
    state.columns["name"].put(slots, pa.array([f"name of {key}" for key in keys]))


def contents(state, keys):
    slots = state.slots_of([pa.array(keys)])
    names = state.columns["name"].take(slots).to_pylist()
    sums = state.columns["sum"].values[slots].tolist()
    return {key: (total, name) for key, total, name in zip(keys, sums, names, strict=True)}


def test_a_column_store_finds_values_over_all_its_chunks():
    store = ColumnStore()
    expected = []
    for length in (5, 1, 3, 1, 1, 40, 2, 0, 7):
        values = list(range(len(expected), len(expected) + length))
        store.append(pa.array(values, pa.int64()))
        expected += values
    assert len(store) == len(expected)
    places = np.array([59, 0, 5, 30, 5, 58])
    assert store.take(places).to_pylist() == [expected[place] for place in places]
    assert 1 < len(store.chunks()) < 5


def test_values_that_were_replaced_are_removed_in_time():
    column = ValueColumn(pa.string())
    column.grow(10)
    for round_ in range(2_000):
        column.put(np.arange(10), pa.array([f"{round_}-{slot}" for slot in range(10)]))
    assert column.take(np.array([3, 0])).to_pylist() == ["1999-3", "1999-0"]
    assert sum(map(len, column._store.chunks())) < 5_000


def test_a_snapshot_does_not_see_later_changes():
    state = a_state()
    put(state, ["a", "b"], [1, 2])
    frozen = state.freeze()
    put(state, ["a", "c"], [10, 30])
    copy = a_state()
    copy.restore([frozen])
    assert contents(copy, ["a", "b"]) == {"a": (1, "name of a"), "b": (2, "name of b")}
    assert len(copy) == 2


def test_a_rescaled_subtask_takes_the_keys_of_its_key_groups():
    keys = [f"key-{i}" for i in range(300)]
    state = a_state()
    put(state, keys, range(300))
    parts = []
    for subtask in range(3):
        groups = range_of(subtask, 3, GROUPS)
        part = a_state(groups)
        part.restore([state.freeze()])
        own = [key for key in keys if key_group_of(stable_hash(key), GROUPS) in groups]
        assert len(part) == len(own)
        assert contents(part, own) == contents(state, own)
        parts.append(part.freeze())
    together = a_state()
    together.restore(parts)
    assert contents(together, keys) == contents(state, keys)


def test_an_empty_state_is_frozen_and_restored():
    copy = a_state()
    copy.restore([a_state().freeze()])
    assert len(copy) == 0


def test_another_declaration_is_refused():
    with pytest.raises(StateTypeChanged, match="'s' holds sums, but is declared as counts"):
        a_state(declaration="counts").restore([a_state().freeze()])


def test_another_max_parallelism_is_refused():
    with pytest.raises(StateMisuse, match="set the max parallelism to 16"):
        a_state(groups=32).restore([a_state().freeze()])


def test_a_million_keys_stay_below_100_megabytes_and_freeze_in_100_milliseconds():
    state = a_state()
    del state.columns["name"]
    for start in range(0, 1_000_000, 250_000):
        state.slots_of([pa.array([f"key-{i}" for i in range(start, start + 250_000)])])
    assert state.nbytes < 100_000_000
    begin = time.thread_time()
    state.freeze()
    assert time.thread_time() - begin < 0.1
