"""What only the RocksDB backend has: a database, files, keys that are not in memory."""

import random
import stat
import threading
from datetime import timedelta

import pyarrow as pa
import pytest

from tests.unit.state.test_backends import Average, columns, of_key
from tidegate.core.clock import ManualClock
from tidegate.core.errors import LocalStateFailed, StateMisuse
from tidegate.state.descriptors import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    ValueStateDescriptor,
)
from tidegate.state.keys.key_groups import KeyGroupRange, range_of
from tidegate.state.keys.selection import KeyColumns
from tidegate.state.keys.stable_hash import stable_hash
from tidegate.state.memory.backend import HashMapBackend
from tidegate.state.rocksdb.backend import RocksDBBackend
from tidegate.state.rocksdb.image import chunks_of_database

ALL = KeyGroupRange(0, 16)
VALUE = ValueStateDescriptor("value")


@pytest.fixture
def a_backend(tmp_path):
    made = []

    def make(clock=None, memory=8 << 20, key_groups=ALL):
        made.append(RocksDBBackend(key_groups, 16, clock, tmp_path / "local", memory))
        return made[-1]

    yield make
    for backend in made:
        backend.close()


@pytest.fixture
def backend(a_backend):
    return a_backend()


def put(backend, entries):
    state = backend.value_state(VALUE)
    places = backend.places_of(list(entries))
    for backend.place, value in zip(places, entries.values(), strict=True):
        state.update(value) if value is not None else state.clear()
    backend.clean_up(len(entries))


def values(backend, keys):
    state = backend.value_state(VALUE)
    found = {}
    places = backend.places_of(list(keys))
    for key, backend.place in zip(keys, places, strict=True):
        found[key] = state.value()
    return found


def sizes(frozen):
    return {file.name: file.path.stat().st_size for file in frozen.native_files()}


def test_keys_that_left_memory_come_back_with_all_their_states(backend):
    of_key(backend, "a")
    backend.value_state(VALUE).update({"n": [1]})
    backend.list_state(ListStateDescriptor("list")).add_all([1, 2])
    backend.map_state(MapStateDescriptor("map")).put("x", (1, "y"))
    backend.reducing_state(ReducingStateDescriptor("largest", max)).add(7)
    backend.aggregating_state(AggregatingStateDescriptor("average", Average())).add(4)
    backend.shrink(0)
    assert len(backend._keys) == 0
    of_key(backend, "a")
    assert backend.value_state(VALUE).value() == {"n": [1]}
    assert list(backend.list_state(ListStateDescriptor("list"))) == [1, 2]
    assert list(backend.map_state(MapStateDescriptor("map")).items()) == [("x", (1, "y"))]
    assert backend.reducing_state(ReducingStateDescriptor("largest", max)).get() == 7
    assert backend.aggregating_state(AggregatingStateDescriptor("average", Average())).get() == 4


def test_what_is_changed_in_place_is_written_when_the_key_leaves_memory(backend):
    put(backend, {"a": [1]})
    backend.shrink(0)
    of_key(backend, "a", backend.value_state(VALUE)).value().append(2)
    backend.shrink(0)
    assert values(backend, ["a"]) == {"a": [1, 2]}


def test_a_value_that_was_cleared_does_not_come_back(backend):
    put(backend, {"a": 1, "b": 2})
    backend.shrink(0)
    of_key(backend, "a", backend.value_state(VALUE)).clear()
    backend.shrink(0)
    assert values(backend, ["a", "b"]) == {"a": None, "b": 2}
    assert list(backend.keys("value")) == ["b"]


def test_a_state_that_is_declared_late_finds_what_is_stored_of_the_keys_in_memory(a_backend):
    first = a_backend()
    put(first, {"a": 1})
    second = a_backend()
    second.restore([first.freeze()])
    second.value_state(ValueStateDescriptor("other"))
    of_key(second, "a")
    assert second.value_state(VALUE).value() == 1


@pytest.mark.slow
def test_keys_beyond_the_memory_budget_are_on_disk_and_nothing_is_lost(a_backend):
    backend = a_backend(memory=4 << 20)
    expected = {}
    for start in range(0, 60_000, 5_000):
        batch = {f"key-{i}": [i, "x" * 50] for i in range(start, start + 5_000)}
        put(backend, batch)
        expected |= batch
    assert len(backend._keys) < 20_000
    keys = random.Random(1).sample(sorted(expected), 2_000)
    assert values(backend, keys) == {key: expected[key] for key in keys}
    assert len(list(backend.keys("value"))) == 60_000


def test_the_keys_that_were_used_last_stay_in_memory(backend):
    for key in range(100):
        put(backend, {key: key})
    put(backend, {3: 3})
    backend.shrink(2)
    assert sorted(backend._keys.values()) == [3, 99]


def test_keys_that_are_columns_leave_memory_and_come_back(backend):
    state = backend.value_state(VALUE)
    names, years = [f"n{i}" for i in range(50)], list(range(50))
    keys = list(zip(names, years, strict=True))
    for place, year in zip(
        backend.places_of(keys, columns(names, years, is_tuple=True)), years, strict=True
    ):
        backend.place = place
        state.update(year)
    backend.shrink(5)
    places = backend.places_of(keys, columns(names, years, is_tuple=True))
    for backend.place, year in zip(places, years, strict=True):
        assert state.value() == year
    assert sorted(backend.keys("value")) == sorted(keys)


@pytest.mark.parametrize("by_column", [False, True])
def test_timers_fire_with_the_state_of_keys_that_left_memory(a_backend, by_column):
    backend = a_backend()
    state = backend.value_state(VALUE)
    keys = [f"key-{i}" for i in range(20)]
    places = backend.places_of(keys, columns(keys) if by_column else None)
    for i, (key, backend.place) in enumerate(zip(keys, places, strict=True)):
        state.update(i)
        backend.event_timers.register(i, key, backend.place)
    backend.clean_up(20)
    backend.shrink(3)

    def fire(subject, now):
        read, fired = subject.value_state(VALUE), []
        subject.ready_timers(subject.event_timers, now)
        while (timer := subject.event_timers.pop_due(now)) is not None:
            subject.place = timer.place
            fired.append((timer.key, read.value()))
        return fired

    expected = [(key, i) for i, key in enumerate(keys)]
    assert fire(backend, 9) == expected[:10]
    restored = a_backend()
    restored.restore([backend.freeze()])
    assert fire(restored, 100) == expected[10:]
    later = restored.places_of(keys, columns(keys) if by_column else None)
    assert len(set(later)) == 20


def test_timers_of_one_time_fire_in_the_order_of_registration_after_a_restore(a_backend):
    backend = a_backend()
    keys = random.Random(3).sample(range(200), 200)
    for key, place in zip(keys, backend.places_of(keys), strict=True):
        backend.processing_timers.register(5, key, place)
    restored = a_backend()
    restored.restore([backend.freeze()])
    assert [timer.key for timer in restored.processing_timers.timers()] == keys


def test_a_checkpoint_of_few_changes_writes_few_bytes(a_backend):
    backend = a_backend(memory=256 << 20)
    chance = random.Random(7)
    total = 100_000
    put(backend, {f"key-{i}": chance.randrange(10**9) for i in range(total)})
    stored = {}
    for checkpoint in range(12):
        frozen = backend.freeze()
        files = sizes(frozen)
        new = sum(size for name, size in files.items() if name not in stored)
        if checkpoint:
            assert new < 0.10 * sum(files.values())
        shared = {file.name for file in frozen.native_files() if file.is_immutable}
        stored = {name: size for name, size in files.items() if name in shared}
        frozen.release()
        changed = chance.sample(range(total), total // 100)
        put(backend, {f"key-{i}": chance.randrange(10**9) for i in changed})


def test_an_unchanged_state_adds_no_immutable_file(backend):
    put(backend, {i: i for i in range(1_000)})
    first = backend.freeze()
    before = {file.name for file in first.native_files() if file.is_immutable}
    values(backend, range(1_000))
    second = backend.freeze()
    assert {file.name for file in second.native_files() if file.is_immutable} == before


def test_two_lives_never_give_one_name_to_different_files(a_backend):
    origin = a_backend()
    put(origin, {"a": 1})
    frozen = origin.freeze()
    twins = [a_backend(), a_backend()]
    for number, twin in enumerate(twins):
        twin.restore([frozen])
        put(twin, {"a": f"twin {number}"})
    shared, *own = [
        {file.name for file in image.native_files() if file.is_immutable}
        for image in (frozen, *(twin.freeze() for twin in twins))
    ]
    assert shared <= own[0] & own[1]
    assert own[0] & own[1] == shared
    for number, twin in enumerate(twins):
        again = a_backend()
        again.restore([twin.freeze()])
        assert values(again, ["a"]) == {"a": f"twin {number}"}


def test_databases_are_divided_and_joined_and_nothing_old_comes_back(a_backend):
    keys = [f"key {number}" for number in range(200)]
    group = {key: stable_hash(key) % 16 for key in keys}
    images, expected = [], {}
    for round, parallelism in enumerate([2, 3, 2, 4, 1]):
        frozen = []
        for subtask in range(parallelism):
            mine = range_of(subtask, parallelism, 16)
            backend = a_backend(key_groups=mine)
            backend.restore([i for i in images if len(i.key_groups.intersection(mine))])
            held = [key for key in keys if group[key] in mine]
            assert values(backend, held) == {key: expected.get(key) for key in held}
            assert set(backend.keys("value")) == {key for key in held if key in expected}
            changed = {key: (round, key) for key in held[:: round + 1]}
            put(backend, changed)
            cleared = held[round :: round + 3]
            put(backend, dict.fromkeys(cleared))
            expected |= changed
            for key in cleared:
                expected.pop(key, None)
            frozen.append(backend.freeze())
        images = frozen


def test_of_several_databases_the_one_is_gone_on_with_that_saves_most(a_backend):
    origins = [a_backend(key_groups=range_of(i, 3, 16)) for i in range(3)]
    for origin in origins:
        put(origin, {f"key {number}": number for number in range(50)})
    images = [origin.freeze() for origin in origins]
    joined = [a_backend(key_groups=range_of(i, 2, 16)) for i in range(2)]
    joined[0].restore(images[:2])
    joined[1].restore(images[1:])
    was, now = (
        [{file.name for file in image.native_files() if file.is_immutable} for image in frozen]
        for frozen in (images, [backend.freeze() for backend in joined])
    )
    assert was[0] <= now[0]
    assert was[2] <= now[1]
    assert not was[1] & (now[0] | now[1])


def test_a_frozen_database_keeps_its_moment_while_records_flow_and_keys_leave_memory(a_backend):
    backend = a_backend()
    put(backend, {i: [i] for i in range(2_000)})
    frozen = backend.freeze()
    files = []
    writer = threading.Thread(target=lambda: files.extend(frozen.native_files()))
    writer.start()
    for start in range(0, 4_000, 500):
        put(backend, {i: ["later", i] for i in range(start, start + 500)})
        backend.shrink(100)
    writer.join()
    assert files
    restored = a_backend()
    restored.restore([frozen])
    assert values(restored, range(2_000)) == {i: [i] for i in range(2_000)}
    assert values(restored, [3_000]) == {3_000: None}
    assert values(backend, [0, 3_999]) == {0: ["later", 0], 3_999: ["later", 3_999]}


def test_what_a_released_snapshot_never_wrote_is_in_the_next(a_backend):
    backend = a_backend()
    put(backend, {"a": 1})
    backend.freeze().release()
    restored = a_backend()
    restored.restore([backend.freeze()])
    assert values(restored, ["a"]) == {"a": 1}


def test_a_value_that_cannot_be_pickled_fails_the_snapshot_by_name_and_nothing_is_lost(a_backend):
    backend = a_backend()
    put(backend, {"good": 1, "bad": threading.Lock()})
    failed = backend.freeze()
    with pytest.raises(StateMisuse, match=r"state 'value' of the key 'bad' holds <unlocked"):
        failed.native_files()
    with pytest.raises(StateMisuse, match="out of state"):
        failed.native_files()
    failed.release()
    put(backend, {"bad": 2})
    restored = a_backend()
    restored.restore([backend.freeze()])
    assert values(restored, ["good", "bad"]) == {"good": 1, "bad": 2}


def test_a_value_that_cannot_be_pickled_may_not_leave_memory(backend):
    put(backend, {("bad", 1): threading.Lock()})
    with pytest.raises(StateMisuse, match=r"of the key \('bad', 1\) holds"):
        backend.shrink(0)


def test_the_local_directory_goes_with_its_last_user(tmp_path):
    backend = RocksDBBackend(ALL, 16, directory=tmp_path)
    put(backend, {"a": 1})
    frozen = backend.freeze()
    backend.close()
    assert list(chunks_of_files(frozen, tmp_path / "copy")) == [("value", ["a"], [1])]
    frozen.release()
    frozen.release()
    assert [path.name for path in tmp_path.iterdir()] == ["copy"]


def chunks_of_files(frozen, directory):
    from tidegate.state.chunks import unpickled

    frozen.fetch(directory)
    for chunk in chunks_of_database(directory):
        yield (chunk.state, *unpickled(chunk))


def test_a_released_snapshot_leaves_no_directory_and_cannot_be_read(a_backend, tmp_path):
    backend = a_backend()
    put(backend, {"a": 1})
    frozen = backend.freeze()
    frozen.native_files()
    [local] = (tmp_path / "local").iterdir()
    assert len(list(local.iterdir())) == 2
    frozen.release()
    assert [path.name for path in local.iterdir()] == ["db"]
    with pytest.raises(StateMisuse, match="was released"):
        frozen.native_files()


def test_a_directory_that_cannot_be_made_is_named_with_the_setting(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(LocalStateFailed, match=r"file.*state\.backend\.rocksdb\.localdir"):
        RocksDBBackend(ALL, 16, directory=tmp_path / "file" / "below")


def test_a_database_that_fails_is_an_error_that_names_its_directory(backend, tmp_path):
    put(backend, {"a": 1})
    [local] = (tmp_path / "local").iterdir()
    backend.freeze().native_files()
    (local / "snapshot-2").mkdir()
    with pytest.raises(LocalStateFailed, match=r"state on local disk in .*db: .*exists"):
        backend.freeze().native_files()


def test_expired_values_are_removed_from_the_database_as_records_flow(a_backend):
    clock = ManualClock(1_000.0)
    backend = a_backend(clock)
    descriptor = ValueStateDescriptor("lasting")
    descriptor.enable_time_to_live(timedelta(seconds=10))
    state = backend.value_state(descriptor)
    for key in range(100):
        of_key(backend, key, state).update(key)
    backend.shrink(0)
    clock.advance(20)
    of_key(backend, "new", state).update(1)
    backend.clean_up(10)
    assert len(list(backend.keys("lasting"))) == 51
    backend.clean_up(50)
    assert list(backend.keys("lasting")) == ["new"]


def test_expiry_spares_what_lives_on_in_memory(a_backend):
    clock = ManualClock(1_000.0)
    backend = a_backend(clock)
    descriptor = ValueStateDescriptor("lasting")
    descriptor.enable_time_to_live(timedelta(seconds=10))
    state = backend.value_state(descriptor)
    of_key(backend, "a", state).update(1)
    backend.shrink(0)
    clock.advance(9)
    of_key(backend, "a", state).update(2)
    clock.advance(9)
    backend.clean_up(100)
    backend.shrink(0)
    assert of_key(backend, "a", state).value() == 2


@pytest.mark.parametrize("key", [True, 1.0, (1, "a"), float("nan"), None, b"\xff\0", "ä\0", -5])
def test_a_key_comes_back_from_the_files_as_it_was(a_backend, key):
    backend = a_backend()
    put(backend, {key: "held"})
    copy = HashMapBackend(ALL, 16)
    copy.restore([backend.freeze()])
    [found] = copy.keys("value")
    assert (type(found), repr(found)) == (type(key), repr(key))


def test_column_keys_become_columns_again_in_chunks(a_backend):
    backend = a_backend()
    state = backend.value_state(VALUE)
    keys = KeyColumns([pa.array([1.0, 2.5, None])], False)
    places = backend.places_of(keys.values(), keys)
    for backend.place in places:
        state.update(1)
    copy = HashMapBackend(ALL, 16)
    copy.restore([backend.freeze()])
    assert copy._keys.schema.kinds == (pa.float64(),)
    assert set(copy.keys("value")) == {1.0, 2.5, None}


@pytest.mark.skipif("os.geteuid() == 0", reason="root may write everywhere")
def test_a_directory_without_the_right_to_write_is_refused(tmp_path):
    tmp_path.chmod(stat.S_IRUSR | stat.S_IXUSR)
    with pytest.raises(LocalStateFailed, match="no directory can be created there: Permission"):
        RocksDBBackend(ALL, 16, directory=tmp_path)
