from datetime import timedelta

import pytest

from tests.unit.state.test_backends import Average, of_key
from tidegate.core.clock import ManualClock
from tidegate.core.errors import StateTypeChanged
from tidegate.state.descriptors import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateTtlConfig,
    ValueStateDescriptor,
)


@pytest.fixture
def clock():
    return ManualClock(1_000.0)


@pytest.fixture
def backend(a_backend, clock):
    backend = a_backend(clock=clock)
    of_key(backend, "a")
    return backend


def lasting(descriptor, seconds=10, *, read=False, expired=False):
    builder = StateTtlConfig.new_builder(timedelta(seconds=seconds))
    if read:
        builder.update_ttl_on_read_and_write()
    if expired:
        builder.return_expired_if_not_cleaned_up()
    descriptor.enable_time_to_live(builder.build())
    return descriptor


def test_a_value_expires_after_its_time(backend, clock):
    state = backend.value_state(lasting(ValueStateDescriptor("v")))
    state.update(1)
    clock.advance(9.999)
    assert state.value() == 1
    clock.advance(0.001)
    assert state.value() is None
    assert list(backend.keys("v")) == []


def test_writing_prolongs_a_value_and_reading_does_not(backend, clock):
    state = backend.value_state(lasting(ValueStateDescriptor("v")))
    state.update(1)
    clock.advance(8)
    state.update(2)
    clock.advance(8)
    assert state.value() == 2
    clock.advance(8)
    assert state.value() is None


def test_reading_prolongs_a_value_where_it_shall(backend, clock):
    state = backend.value_state(lasting(ValueStateDescriptor("v"), read=True))
    state.update(1)
    for _ in range(5):
        clock.advance(8)
        assert state.value() == 1


def test_an_expired_value_may_be_seen_once_where_that_is_allowed(backend, clock):
    state = backend.value_state(lasting(ValueStateDescriptor("v"), expired=True))
    state.update(1)
    clock.advance(20)
    assert state.value() == 1
    assert state.value() is None


def test_updating_with_none_forgets_a_lasting_value(backend):
    state = backend.value_state(lasting(ValueStateDescriptor("v")))
    state.update(1)
    state.update(None)
    assert state.value() is None


def test_the_elements_of_a_list_expire_one_by_one(backend, clock):
    state = backend.list_state(lasting(ListStateDescriptor("l")))
    assert list(state) == []
    state.add(1)
    clock.advance(6)
    state.add_all([2, 3])
    clock.advance(6)
    assert list(state) == [2, 3]
    state.update([4])
    clock.advance(9)
    assert list(state) == [4]
    clock.advance(9)
    assert list(state) == []
    assert list(backend.keys("l")) == []


def test_the_entries_of_a_map_expire_one_by_one(backend, clock):
    state = backend.map_state(lasting(MapStateDescriptor("m")))
    state.put("x", 1)
    clock.advance(6)
    state.put_all({"y": 2, "z": None})
    clock.advance(6)
    assert (state.get("x"), state.get("y"), "x" in state, "z" in state) == (None, 2, False, True)
    assert list(state.items()) == [("y", 2), ("z", None)]
    assert (list(state.keys()), list(state.values())) == (["y", "z"], [2, None])
    state.remove("z")
    clock.advance(6)
    assert state.is_empty()
    assert list(backend.keys("m")) == []


def test_reading_prolongs_the_entry_that_is_read(backend, clock):
    state = backend.map_state(lasting(MapStateDescriptor("m"), read=True))
    state.put_all({"x": 1, "y": 2})
    clock.advance(8)
    assert state.get("x") == 1
    clock.advance(8)
    assert list(state.items()) == [("x", 1)]


def test_expired_values_are_not_reduced_or_aggregated_into_new_ones(backend, clock):
    reducing = backend.reducing_state(
        lasting(ReducingStateDescriptor("r", lambda a, b: a + b), expired=True)
    )
    aggregating = backend.aggregating_state(lasting(AggregatingStateDescriptor("g", Average())))
    reducing.add(1)
    reducing.add(2)
    aggregating.add(10)
    assert (reducing.get(), aggregating.get()) == (3, 10)
    clock.advance(20)
    reducing.add(5)
    aggregating.add(4)
    assert (reducing.get(), aggregating.get()) == (5, 4)


def test_a_snapshot_leaves_out_what_has_expired_and_keeps_the_age_of_the_rest(
    backend, a_backend, clock
):
    value = backend.value_state(lasting(ValueStateDescriptor("v")))
    items = backend.list_state(lasting(ListStateDescriptor("l")))
    value.update(1)
    items.add(1)
    clock.advance(6)
    of_key(backend, "b")
    value.update(2)
    of_key(backend, "a")
    items.add(2)
    clock.advance(6)

    copy = a_backend(clock=clock)
    copy.restore([backend.freeze()])
    assert list(copy.keys("v")) == ["b"]
    value = copy.value_state(lasting(ValueStateDescriptor("v")))
    items = copy.list_state(lasting(ListStateDescriptor("l")))
    of_key(copy, "a")
    assert list(items) == [2]
    of_key(copy, "b")
    assert value.value() == 2
    clock.advance(4)
    assert value.value() is None


def test_a_snapshot_does_not_see_later_changes_of_lasting_values(backend, a_backend, clock):
    value = backend.value_state(lasting(ValueStateDescriptor("v")))
    items = backend.list_state(lasting(ListStateDescriptor("l")))
    entries = backend.map_state(lasting(MapStateDescriptor("m")))
    value.update([1])
    items.add([1])
    entries.put("x", [1])
    frozen = backend.freeze()
    value.value().append(2)
    items.add([2])
    items.get()[0].append(2)
    entries.get("x").append(2)

    copy = a_backend(clock=clock)
    copy.restore([frozen])
    of_key(copy, "a")
    assert copy.value_state(lasting(ValueStateDescriptor("v"))).value() == [1]
    assert list(copy.list_state(lasting(ListStateDescriptor("l")))) == [[1]]
    assert copy.map_state(lasting(MapStateDescriptor("m"))).get("x") == [1]


def test_clean_up_in_the_background_can_be_switched_off(backend, clock):
    descriptor = ValueStateDescriptor("v")
    descriptor.enable_time_to_live(
        StateTtlConfig.new_builder(10).disable_cleanup_in_background().build()
    )
    backend.value_state(descriptor).update(1)
    clock.advance(20)
    backend.clean_up(1000)
    assert list(backend.keys("v")) == ["a"]


def test_a_time_to_live_given_or_taken_away_later_is_refused(backend):
    backend.value_state(lasting(ValueStateDescriptor("v"))).update(1)
    with pytest.raises(StateTypeChanged, match="with a time to live"):
        backend.value_state(ValueStateDescriptor("v"))
