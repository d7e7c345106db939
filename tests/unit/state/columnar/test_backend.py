import numpy as np
import pyarrow as pa
import pytest

from tidegate.core.errors import StateMisuse, StateTypeChanged
from tidegate.state.columnar.backend import ColumnarState, NumberColumn, ValueColumn
from tidegate.state.columns import ColumnStore
from tidegate.state.keys.key_groups import KeyGroupRange, range_of
from tidegate.state.keys.key_index import KeyIndex
from tidegate.state.keys.stable_hash import stable_hash
from tidegate.state.rocksdb.columnar import RocksDBColumnarState

GROUPS = 16


ALL = KeyGroupRange(0, GROUPS)


@pytest.fixture(params=[ColumnarState, RocksDBColumnarState])
def a_state(request):
    made = []

    def make(key_groups=ALL, declaration="sums", groups=GROUPS):
        columns = {"sum": NumberColumn(np.int64), "name": ValueColumn(pa.string())}
        keys = KeyIndex([pa.string()], is_tuple=False)
        made.append(request.param("s", declaration, keys, columns, key_groups, groups))
        return made[-1]

    yield make
    for state in made:
        state.close()


def put(state, keys, sums):
    places = state.places_of([pa.array(keys)])
    state.columns["sum"].values[places] = sums
    state.columns["name"].put(places, pa.array([f"name of {key}" for key in keys]))


def contents(state, keys):
    places = state.places_of([pa.array(keys)])
    names = state.columns["name"].take(places).to_pylist()
    sums = state.columns["sum"].values[places].tolist()
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
        column.put(np.arange(10), pa.array([f"{round_}-{place}" for place in range(10)]))
    assert column.take(np.array([3, 0])).to_pylist() == ["1999-3", "1999-0"]
    assert sum(map(len, column._store.chunks())) < 5_000


def test_a_snapshot_does_not_see_later_changes(a_state):
    state = a_state()
    put(state, ["a", "b"], [1, 2])
    frozen = state.freeze()
    put(state, ["a", "c"], [10, 30])
    copy = a_state()
    copy.restore([frozen])
    assert contents(copy, ["a", "b"]) == {"a": (1, "name of a"), "b": (2, "name of b")}
    copy.places_of([pa.array(["c"])])
    assert len(copy.new) == 1


def test_a_rescaled_subtask_takes_the_keys_of_its_key_groups(a_state):
    keys = [f"key-{i}" for i in range(300)]
    state = a_state()
    put(state, keys, range(300))
    parts = []
    for subtask in range(3):
        groups = range_of(subtask, 3, GROUPS)
        part = a_state(groups)
        part.restore([state.freeze()])
        own = [key for key in keys if stable_hash(key) % GROUPS in groups]
        assert contents(part, own) == contents(state, own)
        assert not len(part.new)
        assert len(part) == len(own)
        parts.append(part.freeze())
    together = a_state()
    together.restore(parts)
    assert contents(together, keys) == contents(state, keys)


def test_an_empty_state_is_frozen_and_restored(a_state):
    copy = a_state()
    copy.restore([a_state().freeze()])
    assert len(copy) == 0


def test_another_declaration_is_refused(a_state):
    with pytest.raises(StateTypeChanged, match="'s' holds sums, but is declared as counts"):
        a_state(declaration="counts").restore([a_state().freeze()])


def test_another_max_parallelism_is_refused(a_state):
    with pytest.raises(StateMisuse, match="set the max parallelism to 16"):
        a_state(groups=32).restore([a_state().freeze()])


@pytest.mark.slow
def test_a_million_keys_stay_below_100_megabytes():
    keys = KeyIndex([pa.string()], is_tuple=False)
    state = ColumnarState("s", "sums", keys, {"sum": NumberColumn(np.int64)}, ALL, GROUPS)
    for start in range(0, 1_000_000, 250_000):
        state.places_of([pa.array([f"key-{i}" for i in range(start, start + 250_000)])])
    assert state.nbytes < 100_000_000


@pytest.fixture
def on_disk():
    keys = KeyIndex([pa.string()], is_tuple=False)
    columns = {"sum": NumberColumn(np.int64), "name": ValueColumn(pa.string())}
    state = RocksDBColumnarState("s", "sums", keys, columns, ALL, GROUPS, memory=2 << 20)
    yield state
    state.close()


def test_rows_that_left_memory_come_back_and_are_not_new(on_disk):
    keys = [f"key-{i}" for i in range(100)]
    put(on_disk, keys, range(100))
    on_disk.shrink(10)
    assert len(on_disk) == 10
    found = contents(on_disk, keys)
    assert found == {key: (i, f"name of {key}") for i, key in enumerate(keys)}
    assert (len(on_disk.loaded), len(on_disk.new)) == (90, 0)
    contents(on_disk, ["another", "key-5"])
    assert (len(on_disk.loaded), len(on_disk.new)) == (0, 1)


def test_columnar_state_beyond_its_memory_is_on_disk_and_nothing_is_lost(on_disk):
    for start in range(0, 30_000, 1_000):
        put(on_disk, [f"key-{i}" for i in range(start, start + 1_000)], range(start, start + 1_000))
        on_disk.clean_up()
    assert len(on_disk) < 15_000
    asked = [f"key-{i}" for i in range(0, 30_000, 77)]
    assert contents(on_disk, asked) == {key: (int(key[4:]), f"name of {key}") for key in asked}
