"""What two savepoints have not in common."""

import pytest

from tests.savepoints import stored, use
from tests.unit.savepoint.test_reader import operator_states
from tidegate.core.modes import SavepointFormat
from tidegate.savepoint import state_reader
from tidegate.savepoint.comparing import difference
from tidegate.state.descriptors import ListStateDescriptor, ValueStateDescriptor
from tidegate.types.typeinfo import Types


def counts(values, type_info=None, timers=(), **more):
    """Fills a backend with a state of these values by key."""

    def fill(backend):
        state = backend.value_state(ValueStateDescriptor("count", type_info))
        for key, value in values.items():
            if use(backend, key):
                state.update(value)
        for name, value in more.items():
            if use(backend, "key"):
                backend.list_state(ListStateDescriptor(name)).add(value)
        for key, time in timers:
            if use(backend, key):
                backend.event_timers.register(time, key, backend.place)

    return fill


@pytest.fixture
def diff(tmp_path):
    def compare(before, after, **more):
        paths = [
            stored(tmp_path / "a", before, **more),
            stored(tmp_path / "b", after, backend="rocksdb", format=SavepointFormat.NATIVE),
        ]
        return difference(*map(state_reader, paths))

    return compare


def test_the_same_state_in_another_backend_and_format_is_the_same(diff):
    values = {"a": (1, float("nan")), "b": [2], 3: {"x": {1, 2}}}
    operators = {"op": counts(values, timers=[("a", 1), ("a", 2)])}
    assert diff(operators, operators).is_empty


def test_operators_and_states_that_one_alone_has_are_named(diff):
    found = diff(
        {"gone": counts({}), "op": counts({}, old=1)},
        {"come": counts({}), "op": counts({}, new=1)},
    )
    assert (found.operators_added, found.operators_removed) == (["come"], ["gone"])
    [operator] = found.operators
    assert (operator.label, operator.states_added, operator.states_removed) == (
        "op",
        ["new"],
        ["old"],
    )


def test_keys_are_counted_and_shown(diff):
    before = {f"same {n}": n for n in range(9)} | {"gone": 1, "changed": [1]}
    after = {f"same {n}": n for n in range(9)} | {"come": 2, "changed": [1, 2]}
    [operator] = diff({"op": counts(before)}, {"op": counts(after)}).operators
    [state] = operator.states
    assert (state.added, state.removed, state.changed, state.same) == (1, 1, 1, 9)
    assert sorted(state.examples) == ["+ 'come': 2", "- 'gone': 1", "~ 'changed': [1] → [1, 2]"]
    assert state.type_before is None


def test_a_value_of_another_type_is_another_value(diff):
    [operator] = diff({"op": counts({"a": 1})}, {"op": counts({"a": True})}).operators
    assert operator.states[0].changed == 1


def test_a_changed_declaration_is_shown(diff):
    values = {"a": 1}
    found = diff({"op": counts(values)}, {"op": counts(values, Types.LONG())})
    [state] = found.operators[0].states
    assert (state.type_before, state.type_after) == ("value any value", "value Long")
    assert state.same == 1


def test_timers_differ_by_key_and_time(diff):
    found = diff(
        {"op": counts({}, timers=[("a", 1), ("a", 2)])},
        {"op": counts({}, timers=[("a", 1), ("a", 3)])},
    )
    [state] = found.operators[0].states
    assert (state.name, state.added, state.removed, state.same) == ("_timers/event-time", 1, 1, 1)


def test_elements_of_operator_state_are_compared(tmp_path):
    paths = [
        stored(
            tmp_path / name, {"op": lambda backend: None}, parallelism=1, states={"op": [states]}
        )
        for name, states in (("a", operator_states(0)), ("b", operator_states(1)))
    ]
    [operator] = difference(*map(state_reader, paths)).operators
    [state] = operator.states
    assert (state.name, state.added, state.removed, state.same) == ("offsets", 1, 1, 1)
