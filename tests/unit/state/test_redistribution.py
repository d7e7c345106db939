import pickle

from tidegate.state.operator_state import FrozenOperatorState, Redistribution
from tidegate.state.redistribution import redistribute


def state(redistribution, *elements, name="s"):
    pickled = tuple(pickle.dumps(element) for element in elements)
    return FrozenOperatorState(name, "list", redistribution, pickled)


def elements(states):
    return [
        [pickle.loads(element) for found in subtask for element in found.elements]
        for subtask in states
    ]


def test_a_split_list_is_dealt_out_evenly_in_order():
    old = [[state(Redistribution.SPLIT, 1, 2, 3)], [state(Redistribution.SPLIT, 4, 5)]]
    assert elements(redistribute(old, 3)) == [[1], [2, 3], [4, 5]]
    assert elements(redistribute(old, 1)) == [[1, 2, 3, 4, 5]]


def test_a_split_list_stays_where_it_is_when_the_parallelism_does():
    old = [[state(Redistribution.SPLIT, 1, 2, 3)], [state(Redistribution.SPLIT)]]
    assert elements(redistribute(old, 2)) == [[1, 2, 3], []]


def test_a_union_list_goes_whole_to_everyone():
    old = [[state(Redistribution.UNION, 1)], [state(Redistribution.UNION, 2)]]
    assert elements(redistribute(old, 3)) == [[1, 2]] * 3


def test_broadcast_state_goes_to_new_subtasks_once():
    old = [[state(Redistribution.BROADCAST, "r")], [state(Redistribution.BROADCAST, "r")]]
    assert elements(redistribute(old, 3)) == [["r"]] * 3
    assert elements(redistribute(old, 1)) == [["r"]]


def test_states_of_one_operator_are_redistributed_each_by_its_own_rule():
    old = [
        [state(Redistribution.SPLIT, 1, 2), state(Redistribution.UNION, "u", name="t")],
        [state(Redistribution.UNION, "v", name="t")],
    ]
    new = redistribute(old, 2)
    assert [[found.name for found in subtask] for subtask in new] == [["s", "t"], ["s", "t"]]
    assert elements(new) == [[1, 2, "u", "v"], ["u", "v"]]
