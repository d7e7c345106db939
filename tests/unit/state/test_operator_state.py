import threading

import pytest

from tidegate.core.errors import StateMisuse, StateTypeChanged
from tidegate.state.descriptors import ListStateDescriptor, MapStateDescriptor
from tidegate.state.operator_state import OperatorStateStore
from tidegate.types.typeinfo import Types

OFFSETS = ListStateDescriptor("offsets", Types.LONG())
RULES = MapStateDescriptor("rules", Types.STRING(), Types.LONG())


def restored(frozen):
    store = OperatorStateStore()
    store.restore(frozen)
    return store


def test_a_list_that_was_read_does_not_grow():
    state = OperatorStateStore().get_list_state(ListStateDescriptor("list"))
    state.add(1)
    for element in state.get():
        state.add(element + 1)
    assert state.get() == [1, 2]


def test_a_list_keeps_what_is_added():
    state = OperatorStateStore().get_list_state(OFFSETS)
    state.add(1)
    state.add_all([2, 3])
    assert list(state) == [1, 2, 3]
    state.update([9])
    assert list(state.get()) == [9]
    state.clear()
    assert list(state.get()) == []


def test_a_broadcast_map_is_used_like_a_map():
    state = OperatorStateStore().get_broadcast_state(RULES)
    state["a"] = 1
    state.put_all({"b": 2, "c": 3})
    del state["c"]
    assert (state["a"], state.get("b"), state.get("c"), "b" in state) == (1, 2, None, True)
    assert (list(state), list(state.values())) == (["a", "b"], [1, 2])
    assert list(state.items()) == [("a", 1), ("b", 2)]
    assert not state.is_empty()
    state.clear()
    assert state.is_empty()


def test_all_nan_are_one_key_of_a_broadcast_map():
    store = OperatorStateStore()
    store.get_broadcast_state(MapStateDescriptor("any")).put_all({float("nan"): 1})
    state = restored(store.freeze()).get_broadcast_state(MapStateDescriptor("any"))
    state.put(float("nan"), 2)
    assert (list(state.values()), state.get(float("nan"))) == ([2], 2)
    assert state.contains(float("nan"))
    state.remove(float("nan"))
    assert state.is_empty()


def test_asking_twice_gives_the_same_state():
    store = OperatorStateStore()
    store.get_list_state(OFFSETS).add(1)
    assert list(store.get_list_state(ListStateDescriptor("offsets", Types.LONG()))) == [1]


def test_states_come_back_from_a_snapshot_whether_asked_for_before_or_after_the_restore():
    store = OperatorStateStore()
    store.get_list_state(OFFSETS).add_all([1, 2])
    store.get_broadcast_state(RULES).put("a", 1)
    frozen = store.freeze()

    after = restored(frozen)
    assert after.is_restored
    assert list(after.get_list_state(OFFSETS)) == [1, 2]
    assert list(after.get_broadcast_state(RULES).items()) == [("a", 1)]

    before = OperatorStateStore()
    offsets, rules = before.get_list_state(OFFSETS), before.get_broadcast_state(RULES)
    assert not before.is_restored
    before.restore(frozen)
    assert (list(offsets), list(rules.items())) == ([1, 2], [("a", 1)])


def test_a_snapshot_does_not_see_later_changes_not_even_in_place():
    store = OperatorStateStore()
    state = store.get_list_state(ListStateDescriptor("lists"))
    state.add([1])
    frozen = store.freeze()
    state.get()[0].append(2)
    state.add([3])
    assert list(restored(frozen).get_list_state(ListStateDescriptor("lists"))) == [[1]]


def test_a_state_that_nobody_asks_for_any_more_stays_in_later_snapshots():
    store = OperatorStateStore()
    store.get_list_state(OFFSETS).add(1)
    again = restored(store.freeze()).freeze()
    assert list(restored(again).get_list_state(OFFSETS)) == [1]


def test_another_type_than_stored_is_refused_with_both_named():
    store = OperatorStateStore()
    store.get_list_state(OFFSETS).add(1)
    changed = ListStateDescriptor("offsets", Types.STRING())
    with pytest.raises(StateTypeChanged, match=r"holds split list state of Long.*of String"):
        restored(store.freeze()).get_list_state(changed)
    with pytest.raises(StateTypeChanged):
        store.get_list_state(changed)


def test_another_way_to_redistribute_is_refused():
    store = OperatorStateStore()
    store.get_list_state(OFFSETS).add(1)
    with pytest.raises(StateTypeChanged, match="declared as union list state"):
        restored(store.freeze()).get_union_list_state(OFFSETS)


def test_an_element_that_cannot_be_stored_is_named():
    store = OperatorStateStore()
    store.get_list_state(ListStateDescriptor("locks")).add(threading.Lock())
    with pytest.raises(StateMisuse, match=r"operator state 'locks' holds <unlocked _thread.lock"):
        store.freeze()
