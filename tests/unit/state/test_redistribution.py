import pickle

import pytest

from tidegate.state.operator_state import FrozenOperatorState, Redistribution
from tidegate.state.redistribution import put_together, share_of


def state(redistribution, *elements, name="s"):
    pickled = tuple(pickle.dumps(element) for element in elements)
    return FrozenOperatorState(name, "list", redistribution, pickled)


def redistributed(old, parallelism):
    """For each new subtask the elements of its states, by name."""
    facts = [[each.facts for each in states] for states in old]
    shares = [share_of(subtask, parallelism, facts) for subtask in range(parallelism)]
    return [
        {each.name: list(map(pickle.loads, each.elements)) for each in states}
        for states in (put_together(share, old.__getitem__) for share in shares)
    ]


def test_a_split_list_is_dealt_out_evenly_in_order():
    old = [[state(Redistribution.SPLIT, 1, 2, 3)], [state(Redistribution.SPLIT, 4, 5)]]
    assert redistributed(old, 3) == [{"s": [1]}, {"s": [2, 3]}, {"s": [4, 5]}]
    assert redistributed(old, 1) == [{"s": [1, 2, 3, 4, 5]}]


def test_a_split_list_stays_where_it_is_when_the_parallelism_does():
    old = [[state(Redistribution.SPLIT, 1, 2, 3)], [state(Redistribution.SPLIT)]]
    assert redistributed(old, 2) == [{"s": [1, 2, 3]}, {}]


def test_a_union_list_goes_whole_to_everyone():
    old = [[state(Redistribution.UNION, 1)], [state(Redistribution.UNION, 2)]]
    assert redistributed(old, 3) == [{"s": [1, 2]}] * 3


@pytest.mark.parametrize("parallelism", [1, 2, 3])
def test_broadcast_state_is_taken_from_one_old_subtask(parallelism):
    old = [[state(Redistribution.BROADCAST, "r")], [state(Redistribution.BROADCAST, "r")]]
    assert redistributed(old, parallelism) == [{"s": ["r"]}] * parallelism


def test_states_of_one_operator_are_redistributed_each_by_its_own_rule():
    old = [
        [state(Redistribution.SPLIT, 1, 2), state(Redistribution.UNION, "u", name="t")],
        [state(Redistribution.UNION, "v", name="t")],
    ]
    assert redistributed(old, 2) == [{"s": [1, 2], "t": ["u", "v"]}, {"t": ["u", "v"]}]


def test_nothing_is_read_of_a_subtask_that_has_nothing_for_the_new_one():
    old = [[state(Redistribution.SPLIT, 1, 2)], [state(Redistribution.SPLIT, 3, 4)]]
    facts = [[each.facts for each in states] for states in old]
    assert {part.owner for part in share_of(0, 4, facts)} == {0}
