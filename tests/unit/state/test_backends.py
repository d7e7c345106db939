import threading
from datetime import timedelta

import pyarrow as pa
import pytest

from tests.unit.state.conftest import GROUPS
from tidegate.core.errors import StateMisuse, StateTypeChanged
from tidegate.operators.functions import AggregateFunction
from tidegate.state.backend import KeyedStateImage
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
from tidegate.types.typeinfo import Types

VALUE = ValueStateDescriptor("value", Types.LONG())
LIST = ListStateDescriptor("list")
MAP = MapStateDescriptor("map")


class Average(AggregateFunction):
    def create_accumulator(self):
        return [0, 0]

    def add(self, value, accumulator):
        accumulator[0] += value
        accumulator[1] += 1
        return accumulator

    def get_result(self, accumulator):
        return accumulator[0] / accumulator[1]


AVERAGE = AggregatingStateDescriptor("average", Average())


def of_key(backend, key, state=None):
    backend.current_key = key
    [backend.place] = backend.places_of([key])
    return state


def test_a_value_belongs_to_the_current_key(a_backend):
    backend = a_backend()
    state = backend.value_state(VALUE)
    of_key(backend, "a", state).update(1)
    of_key(backend, "b", state).update(2)
    assert of_key(backend, "a", state).value() == 1
    assert of_key(backend, "b", state).value() == 2
    assert of_key(backend, "c", state).value() is None


def test_updating_with_none_forgets_the_value(a_backend):
    backend = a_backend()
    state = of_key(backend, "a", backend.value_state(VALUE))
    state.update(1)
    state.update(None)
    assert state.value() is None
    assert list(backend.keys("value")) == []


def test_a_list_that_was_read_does_not_grow(a_backend):
    state = of_key(backend := a_backend(), "a", backend.list_state(LIST))
    state.add(1)
    for element in state.get():
        state.add(element + 1)
    assert state.get() == [1, 2]
    state.get().append(3)
    assert state.get() == [1, 2]


def test_what_is_stored_does_not_change_with_the_object_that_was_stored(a_backend):
    backend = a_backend()
    value, items, entries = (
        backend.value_state(ValueStateDescriptor("any")),
        backend.list_state(LIST),
        backend.map_state(MAP),
    )
    reused = {"n": [0]}
    for number, key in enumerate("abc"):
        of_key(backend, key)
        reused["n"].append(number)
        value.update(reused)
        items.add(reused)
        items.add_all([reused])
        entries.put("one", reused)
        entries.put_all({"two": reused})
    reused.clear()
    for number, key in enumerate("abc"):
        of_key(backend, key)
        expected = {"n": [0, *range(number + 1)]}
        assert value.value() == expected
        assert items.get() == [expected, expected]
        assert dict(entries.items()) == {"one": expected, "two": expected}


@pytest.mark.parametrize("lasts", [None, timedelta(days=1)])
def test_a_variable_may_change_after_it_was_stored_once(a_backend, lasts):
    descriptors = ValueStateDescriptor("value"), ReducingStateDescriptor("first", lambda a, b: a)
    if lasts is not None:
        for descriptor in descriptors:
            descriptor.enable_time_to_live(lasts)
    backend = a_backend()
    value, first = backend.value_state(descriptors[0]), backend.reducing_state(descriptors[1])
    of_key(backend, "a")
    changing = [1]
    value.update(changing)
    first.add(changing)
    changing.append(2)
    assert (value.value(), first.get()) == ([1], [1])


def test_a_value_that_is_read_and_changed_is_stored_without_a_copy(a_backend):
    backend = a_backend()
    value = of_key(backend, "a", backend.value_state(ValueStateDescriptor("any")))
    value.update([1])
    stored = value.value()
    stored.append(2)
    value.update(stored)
    assert value.value() is stored


@pytest.mark.parametrize("lasts", [None, timedelta(days=1)])
def test_what_is_stored_twice_is_stored_apart(a_backend, lasts):
    descriptors = MapStateDescriptor("map"), ListStateDescriptor("list")
    if lasts is not None:
        for descriptor in descriptors:
            descriptor.enable_time_to_live(lasts)
    backend = a_backend()
    entries, items = backend.map_state(descriptors[0]), backend.list_state(descriptors[1])
    of_key(backend, "a")
    entries.put("one", [1])
    entries.put("two", entries.get("one"))
    entries.get("one").append(2)
    assert dict(entries.items()) == {"one": [1, 2], "two": [1]}
    items.add([1])
    items.update([*items.get(), *items.get()])
    items.get()[0].append(2)
    assert items.get() == [[1, 2], [1]]


@pytest.mark.parametrize("lasts", [None, timedelta(days=1)])
def test_all_nan_are_one_key_of_a_map(a_backend, restored, lasts):
    descriptor = MapStateDescriptor("map")
    if lasts is not None:
        descriptor.enable_time_to_live(lasts)
    backend = a_backend()
    state = of_key(backend, "a", backend.map_state(descriptor))
    for number in range(2):
        state.put(float("nan"), [number])
        state.put((float("nan"), "x"), [number])
    frozen = backend.freeze()
    state.put(float("nan"), [3])
    assert len(list(state.keys())) == 2
    backend = restored(frozen)
    state = of_key(backend, "a", backend.map_state(descriptor))
    assert state.get(float("nan")) == state.get((float("nan"), "x")) == [1]
    state.put_all({float("nan"): 2})
    assert list(state.values()) == [2, [1]]
    state.remove((float("nan"), "x"))
    assert state.contains(float("nan"))
    assert list(state.values()) == [2]


def test_a_list_is_appended_to_and_replaced(a_backend):
    backend = a_backend()
    state = of_key(backend, "a", backend.list_state(LIST))
    assert list(state.get()) == []
    state.add(1)
    state.add_all(x for x in (2, 3))
    assert list(state) == [1, 2, 3]
    state.update([4])
    assert list(state) == [4]
    state.update([])
    assert list(backend.keys("list")) == []


def test_a_map_is_used_by_method_or_like_a_dict(a_backend):
    backend = a_backend()
    state = of_key(backend, "a", backend.map_state(MAP))
    assert state.is_empty()
    assert (state.get("x"), "x" in state, list(state)) == (None, False, [])
    state.put("x", 1)
    state["y"] = 2
    state.put_all({"z": 3})
    assert (state.get("x"), state["y"], state.contains("z")) == (1, 2, True)
    assert (list(state.keys()), list(state.values())) == (["x", "y", "z"], [1, 2, 3])
    assert list(state.items()) == [("x", 1), ("y", 2), ("z", 3)]
    state.remove("x")
    del state["y"]
    state.remove("never")
    assert not state.is_empty()
    state.remove("z")
    assert state.is_empty()
    assert list(backend.keys("map")) == []


def test_entries_may_be_removed_while_a_map_is_read(a_backend):
    backend = a_backend()
    state = of_key(backend, "a", backend.map_state(MAP))
    state.put_all({1: 1, 2: 2})
    for key in state:
        state.remove(key)
    assert state.is_empty()


def test_added_values_are_reduced(a_backend):
    backend = a_backend()
    descriptor = ReducingStateDescriptor("largest", max)
    state = of_key(backend, "a", backend.reducing_state(descriptor))
    assert state.get() is None
    for value in (2, 5, 3):
        state.add(value)
    assert state.get() == 5


def test_added_values_are_aggregated(a_backend):
    backend = a_backend()
    state = of_key(backend, "a", backend.aggregating_state(AVERAGE))
    assert state.get() is None
    state.add(1)
    state.add(2)
    assert state.get() == 1.5
    state.clear()
    assert state.get() is None


def test_one_name_is_one_state(a_backend):
    backend = a_backend()
    of_key(backend, "a", backend.value_state(VALUE)).update(7)
    again = backend.value_state(ValueStateDescriptor("value", Types.LONG()))
    assert again.value() == 7


@pytest.mark.parametrize(
    "changed", [ValueStateDescriptor("value", Types.STRING()), ListStateDescriptor("value")]
)
def test_another_declaration_of_a_name_is_refused(a_backend, restored, changed):
    backend = a_backend()
    backend.value_state(VALUE)
    with pytest.raises(StateTypeChanged, match="'value' holds value state of Long, but is decl"):
        backend.table(changed)
    later = restored(backend.freeze())
    with pytest.raises(StateTypeChanged):
        later.table(changed)
    earlier = a_backend()
    earlier.table(changed)
    with pytest.raises(StateTypeChanged):
        earlier.restore([backend.freeze()])


def test_all_kinds_of_state_and_timers_come_back_from_a_snapshot(a_backend, restored):
    backend = a_backend()
    of_key(backend, "a")
    backend.value_state(VALUE).update(1)
    backend.list_state(LIST).add_all([1, 2])
    backend.map_state(MAP).put("x", 1)
    backend.aggregating_state(AVERAGE).add(4)
    backend.processing_timers.register(10, "a", backend.place)
    backend.event_timers.register(20, "a", backend.place)

    copy = restored(backend.freeze())
    of_key(copy, "a")
    assert copy.value_state(VALUE).value() == 1
    assert list(copy.list_state(LIST)) == [1, 2]
    assert list(copy.map_state(MAP).items()) == [("x", 1)]
    assert copy.aggregating_state(AVERAGE).get() == 4
    for timers, due in ((copy.processing_timers, 10), (copy.event_timers, 20)):
        assert copy.ready_timers(timers, due) == due
        assert timers.pop_due(due) == (due, "a", copy.place)


def test_a_handle_taken_before_the_restore_sees_what_was_restored(a_backend):
    backend = a_backend()
    of_key(backend, "a", backend.value_state(VALUE)).update(1)
    copy = a_backend()
    state = copy.value_state(VALUE)
    copy.restore([backend.freeze()])
    assert of_key(copy, "a", state).value() == 1


def test_a_rescaled_subtask_takes_the_keys_of_its_key_groups(a_backend, restored):
    backend = a_backend()
    state = backend.value_state(VALUE)
    keys = [f"key-{i}" for i in range(100)]
    for i, key in enumerate(keys):
        of_key(backend, key, state).update(i)
        backend.processing_timers.register(i, key, backend.place)
    frozen = backend.freeze()
    parts = [restored(frozen, subtask=i, parallelism=3) for i in range(3)]
    for i, part in enumerate(parts):
        groups = range_of(i, 3, GROUPS)
        expected = {k for k in keys if stable_hash(k) % GROUPS in groups}
        assert set(part.keys("value")) == expected
        assert {timer.key for timer in part.processing_timers.timers()} == expected
    together = restored(*(part.freeze() for part in parts))
    assert sorted(together.keys("value")) == sorted(keys)


def test_chunks_hold_neighbouring_key_groups_and_only_those_asked_for(a_backend):
    backend = a_backend()
    state = backend.value_state(VALUE)
    for i in range(20_000):
        of_key(backend, i, state).update(i)
    frozen = backend.freeze()
    chunks = list(frozen.chunks())
    assert len(chunks) == 3
    groups = [group for chunk in chunks for group, _ in chunk.groups]
    assert groups == sorted(groups)
    assert sum(count for chunk in chunks for _, count in chunk.groups) == 20_000
    asked = [group for c in frozen.chunks(KeyGroupRange(3, 5)) for group, _ in c.groups]
    assert set(asked) == {3, 4}


@pytest.mark.parametrize("touch", ["value", "list", "add", "add_all", "map", "put", "aggregate"])
def test_a_snapshot_does_not_see_what_is_changed_in_place(a_backend, restored, touch):
    backend = a_backend()
    of_key(backend, "a")
    value = backend.value_state(ValueStateDescriptor("v"))
    items, entries = backend.list_state(LIST), backend.map_state(MAP)
    average = backend.aggregating_state(AVERAGE)
    value.update({"n": [1]})
    items.add({"n": 1})
    entries.put("x", [1])
    average.add(2)
    frozen = backend.freeze()
    match touch:
        case "value":
            value.value()["n"].append(2)
        case "list":
            items.get()[0]["n"] = 2
        case "add":
            items.add(3)
            items.get()[0]["n"] = 2
        case "add_all":
            items.add_all([3])
        case "map":
            entries.get("x").append(2)
        case "put":
            entries.put("y", 2)
            entries.get("x").append(2)
        case "aggregate":
            average.add(100)
    copy = restored(frozen)
    of_key(copy, "a")
    assert copy.value_state(ValueStateDescriptor("v")).value() == {"n": [1]}
    assert list(copy.list_state(LIST)) == [{"n": 1}]
    assert list(copy.map_state(MAP).items()) == [("x", [1])]
    assert copy.aggregating_state(AVERAGE).get() == 2


def test_what_is_changed_in_place_while_a_snapshot_is_read_is_not_lost(a_backend):
    backend = a_backend()
    state = of_key(backend, "a", backend.value_state(ValueStateDescriptor("v")))
    state.update([1])
    frozen = backend.freeze()
    state.value().append(2)
    state.value().append(3)
    frozen.release()
    state.value().append(4)
    assert state.value() == [1, 2, 3, 4]


def test_a_bound_method_kept_by_the_user_is_as_safe(a_backend, restored):
    backend = a_backend()
    state = of_key(backend, "a", backend.value_state(ValueStateDescriptor("v")))
    read = state.value
    state.update([1])
    frozen = backend.freeze()
    read().append(2)
    copy = restored(frozen)
    assert of_key(copy, "a", copy.value_state(ValueStateDescriptor("v"))).value() == [1]


def test_two_snapshots_at_once_each_keep_their_moment(a_backend, restored):
    backend = a_backend()
    state = of_key(backend, "a", backend.value_state(ValueStateDescriptor("v")))
    state.update([1])
    first = backend.freeze()
    state.value().append(2)
    second = backend.freeze()
    state.value().append(3)
    copies = [restored(first)]
    first.release()
    state.value().append(4)
    copies.append(restored(second))
    for copy, expected in zip(copies, ([1], [1, 2]), strict=True):
        assert of_key(copy, "a", copy.value_state(ValueStateDescriptor("v"))).value() == expected
    assert state.value() == [1, 2, 3, 4]


def test_values_are_shared_again_once_the_snapshot_is_released(a_backend):
    backend = a_backend()
    state = of_key(backend, "a", backend.value_state(ValueStateDescriptor("v")))
    state.update([1])
    backend.freeze().release()
    assert state.value() is state.value()
    outstanding = backend.freeze()
    copied = state.value()
    assert state.value() is copied
    outstanding.release()
    outstanding.release()
    assert state.value() is copied


def test_a_snapshot_is_read_on_another_thread_while_records_flow(a_backend, restored):
    backend = a_backend()
    state = backend.value_state(ValueStateDescriptor("v"))
    for i in range(5_000):
        of_key(backend, i, state).update([i])
    frozen = backend.freeze()
    chunks = []
    reader = threading.Thread(target=lambda: chunks.extend(frozen.chunks()))
    reader.start()
    for i in range(10_000):
        of_key(backend, i % 6_000, state)
        held = state.value() or []
        held.append("later")
        state.update(held)
    reader.join()

    class Read(KeyedStateImage):
        metadata, max_parallelism = frozen.metadata, frozen.max_parallelism
        key_groups = frozen.key_groups

        def chunks(self, key_groups=None):
            return iter(chunks)

    copy = restored(Read())
    read = copy.value_state(ValueStateDescriptor("v"))
    assert all(of_key(copy, i, read).value() == [i] for i in range(5_000))
    assert len(list(copy.keys("v"))) == 5_000


def test_state_of_another_max_parallelism_is_refused(a_backend):
    frozen = a_backend(groups=32).freeze()
    with pytest.raises(StateMisuse, match="set the max parallelism to 32"):
        a_backend().restore([frozen])


def test_a_value_that_cannot_be_stored_is_named_with_its_key(a_backend):
    backend = a_backend()
    state = backend.value_state(ValueStateDescriptor("connection"))
    of_key(backend, "good", state).update(1)
    of_key(backend, "bad", state).update(threading.Lock())
    with pytest.raises(StateMisuse, match=r"state 'connection' of the key 'bad' holds <unlocked"):
        list(backend.freeze().chunks())


def test_a_state_that_nobody_asks_for_any_more_stays_in_later_snapshots(a_backend, restored):
    backend = a_backend()
    of_key(backend, "a", backend.value_state(VALUE)).update(1)
    again = restored(restored(backend.freeze()).freeze())
    assert of_key(again, "a", again.value_state(VALUE)).value() == 1


def columns(*parts, is_tuple=False):
    return KeyColumns([pa.array(part) for part in parts], is_tuple)


def test_keys_that_are_columns_are_the_same_keys_as_their_values(a_backend):
    backend = a_backend()
    state = backend.value_state(VALUE)
    places = backend.places_of(["a", "b", "a"], columns(["a", "b", "a"]))
    assert places[0] == places[2] != places[1]
    for backend.place, value in zip(places, (1, 2, 3), strict=True):
        state.update(value)
    assert of_key(backend, "a", state).value() == 3
    assert of_key(backend, "b", state).value() == 2
    assert sorted(backend.keys("value")) == ["a", "b"]


@pytest.mark.parametrize("is_tuple", [False, True])
def test_keys_that_are_columns_come_back_as_columns_or_as_values(a_backend, restored, is_tuple):
    backend = a_backend()
    state = backend.value_state(VALUE)
    texts = [f"key-{i}" for i in range(100)]
    keys = [(text,) for text in texts] if is_tuple else texts
    places = backend.places_of(keys, columns(texts, is_tuple=is_tuple))
    for i, backend.place in enumerate(places):
        state.update(i)
    backend.processing_timers.register(5, keys[7], places[7])

    by_columns, by_values = restored(backend.freeze()), restored(backend.freeze())
    places = by_columns.places_of(keys, columns(texts, is_tuple=is_tuple))
    state = by_columns.value_state(VALUE)
    for i, by_columns.place in enumerate(places):
        assert state.value() == i
    state = by_values.value_state(VALUE)
    assert [of_key(by_values, key, state).value() for key in keys] == list(range(100))
    for copy in (by_columns, by_values):
        assert len(list(copy.keys("value"))) == 100
        [timer] = copy.processing_timers.timers()
        assert (timer.timestamp, timer.key) == (5, keys[7])
    for subtask in range(3):
        part = restored(backend.freeze(), subtask=subtask, parallelism=3)
        groups = range_of(subtask, 3, GROUPS)
        expected = {key for key in keys if stable_hash(key) % GROUPS in groups}
        assert set(part.keys("value")) == expected


def test_two_inputs_may_have_keys_of_different_types(a_backend):
    backend = a_backend()
    state = backend.value_state(VALUE)
    [backend.place] = backend.places_of([1], columns([1]))
    state.update(5)
    [backend.place] = backend.places_of([1.0], columns([1.0]))
    assert state.value() == 5
    [backend.place] = backend.places_of([("a", 1)], columns(["a"], [1], is_tuple=True))
    assert state.value() is None


def test_a_key_that_arrow_would_decode_differently_is_kept_as_a_value(a_backend):
    backend = a_backend()
    state = backend.value_state(VALUE)
    column = pa.array([2**70], pa.decimal256(76, 0))
    [backend.place] = backend.places_of([2**70], KeyColumns([column], False))
    state.update(1)
    [key] = backend.keys("value")
    assert type(key) is int


def test_all_nans_are_one_key(a_backend):
    backend = a_backend()
    assert len(set(backend.places_of([float("nan"), float("nan"), 1.0]))) == 2
