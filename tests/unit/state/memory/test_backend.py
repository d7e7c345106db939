import tracemalloc

import pytest

from tests.unit.state.test_backends import VALUE, columns, of_key
from tests.unit.state.test_backends_ttl import lasting
from tidegate.core.clock import ManualClock
from tidegate.state.descriptors import ValueStateDescriptor
from tidegate.state.keys.key_groups import KeyGroupRange
from tidegate.state.memory.backend import HashMapBackend


def a_backend():
    return HashMapBackend(KeyGroupRange(0, 16), 16)


def test_freezing_copies_references_and_no_values():
    backend = a_backend()
    table = backend.table(VALUE)
    backend.places_of([f"key-{i}" for i in range(100_000)])
    table.values[:] = [[i] for i in range(100_000)]
    tracemalloc.start()
    try:
        frozen = backend.freeze()
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    frozen.release()
    assert most < 2 * 8 * 100_000


@pytest.mark.parametrize("form", ["values", "columns"])
def test_keys_that_hold_nothing_any_more_are_forgotten(form):
    backend = a_backend()
    state = backend.value_state(VALUE)
    backend.processing_timers.register(7, "waiting", backend.places_of(["waiting"])[0])
    if form == "columns":
        backend = a_backend()
        state = backend.value_state(VALUE)
        [place] = backend.places_of(["waiting"], columns(["waiting"]))
        backend.processing_timers.register(7, "waiting", place)
    for start in range(0, 50_000, 1_000):
        keys = [f"key-{i}" for i in range(start, start + 1_000)]
        places = backend.places_of(keys, columns(keys) if form == "columns" else None)
        for i, backend.place in enumerate(places):
            state.update(start + i)
            if i % 100:
                state.clear()
        backend.clean_up(1_000)
    assert len(backend._keys) < 10_000
    expected = [f"key-{i}" for i in range(0, 50_000, 100)]
    assert sorted(backend.keys("value")) == sorted(expected)
    [timer] = backend.processing_timers.timers()
    backend.place = timer.place
    assert state.value() is None
    state.update(-1)
    places = backend.places_of(expected, columns(expected) if form == "columns" else None)
    for i, backend.place in enumerate(places):
        assert state.value() == 100 * i


def test_no_key_is_forgotten_while_a_snapshot_is_read():
    backend = a_backend()
    state = backend.value_state(ValueStateDescriptor("v"))
    of_key(backend, "a", state).update([1])
    frozen = backend.freeze()
    backend.places_of([str(i) for i in range(50_000)])
    backend.clean_up(1)
    assert len(backend._keys) == 50_001
    of_key(backend, "a", state).value().append(2)
    copy = a_backend()
    copy.restore([frozen])
    assert of_key(copy, "a", copy.value_state(ValueStateDescriptor("v"))).value() == [1]
    frozen.release()
    backend.clean_up(1)
    assert len(backend._keys) == 1
    assert of_key(backend, "a", state).value() == [1, 2]


@pytest.fixture
def clock():
    return ManualClock(1_000.0)


@pytest.fixture
def hashmap(clock):
    backend = HashMapBackend(KeyGroupRange(0, 16), 16, clock)
    of_key(backend, "a")
    return backend


def test_what_nobody_touches_is_cleaned_up_as_records_flow(hashmap, clock):
    state = hashmap.value_state(lasting(ValueStateDescriptor("v")))
    for key in range(100):
        of_key(hashmap, key)
        state.update(key)
    clock.advance(20)
    of_key(hashmap, "new")
    state.update(1)
    hashmap.clean_up(10)
    assert len(list(hashmap.keys("v"))) == 52  # looked at 50, of which one is new
    hashmap.clean_up(50)
    assert list(hashmap.keys("v")) == ["new"]


def test_clean_up_looks_at_all_keys_four_times_in_a_lifetime(hashmap, clock):
    state = hashmap.value_state(lasting(ValueStateDescriptor("v"), seconds=10))
    state.update(1)
    clock.advance(9)
    hashmap.clean_up(1)
    clock.advance(1)
    hashmap.clean_up(1)
    assert list(hashmap.keys("v")) == ["a"]
    clock.advance(2)
    hashmap.clean_up(1)
    assert list(hashmap.keys("v")) == []
