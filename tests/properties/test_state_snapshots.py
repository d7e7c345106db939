"""A snapshot is the state of one moment, for ever; restored, each key has one owner."""

import copy

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tidegate.state.descriptors import (
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    ValueStateDescriptor,
)
from tidegate.state.hashmap_backend import HashMapBackend
from tidegate.state.key_groups import KeyGroupRange, key_group_of, range_of
from tidegate.state.stable_hash import stable_hash

GROUPS = 8
ALL = KeyGroupRange(0, GROUPS)
KEYS = st.sampled_from(["a", "b", 1, None, ("a", 1), 2.5])
VALUES = st.recursive(
    st.integers() | st.text(max_size=2),
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(st.integers(0, 2), inner, max_size=2)
    ),
    max_leaves=3,
)


def joined(one, other):
    one.append(other)
    return one


class Snapshots(RuleBasedStateMachine):
    """State is changed by all means, also in place, with any number of snapshots outstanding."""

    @initialize()
    def open(self):
        self.backend = HashMapBackend(ALL, GROUPS)
        self.value = self.backend.value_state(ValueStateDescriptor("value"))
        self.items = self.backend.list_state(ListStateDescriptor("items"))
        self.entries = self.backend.map_state(MapStateDescriptor("entries"))
        self.reduced = self.backend.reducing_state(ReducingStateDescriptor("reduced", joined))
        self.model = {"value": {}, "items": {}, "entries": {}, "reduced": {}}
        self.snapshots = []

    def use(self, key):
        [self.backend.place] = self.backend.places_of([key])

    @rule(key=KEYS, value=VALUES)
    def update(self, key, value):
        self.use(key)
        self.value.update(copy.deepcopy(value))
        self.model["value"][key] = copy.deepcopy(value)

    @rule(key=KEYS, value=VALUES)
    def change_a_value_in_place(self, key, value):
        self.use(key)
        held = self.value.value()
        for target in (held, self.model["value"].get(key)):
            if isinstance(target, list):
                target.append(copy.deepcopy(value))
            elif isinstance(target, dict):
                target[0] = copy.deepcopy(value)

    @rule(key=KEYS, value=VALUES)
    def add_to_the_list(self, key, value):
        self.use(key)
        self.items.add(copy.deepcopy(value))
        self.model["items"].setdefault(key, []).append(copy.deepcopy(value))

    @rule(key=KEYS)
    def change_an_element_in_place(self, key):
        self.use(key)
        for elements in (self.items.get(), self.model["items"].get(key, [])):
            for element in elements:
                if isinstance(element, list):
                    element.append("changed")

    @rule(key=KEYS, field=st.integers(0, 2), value=VALUES)
    def put_into_the_map(self, key, field, value):
        self.use(key)
        self.entries.put(field, copy.deepcopy(value))
        self.model["entries"].setdefault(key, {})[field] = copy.deepcopy(value)

    @rule(key=KEYS)
    def change_the_values_of_the_map_in_place(self, key):
        self.use(key)
        for values in (self.entries.values(), self.model["entries"].get(key, {}).values()):
            for value in values:
                if isinstance(value, list):
                    value.clear()

    @rule(key=KEYS, value=VALUES)
    def reduce_in_place(self, key, value):
        self.use(key)
        first = key not in self.model["reduced"]
        self.reduced.add([value] if first else copy.deepcopy(value))
        if first:
            self.model["reduced"][key] = [copy.deepcopy(value)]
        else:
            self.model["reduced"][key].append(copy.deepcopy(value))

    @rule(key=KEYS)
    def clear(self, key):
        self.use(key)
        for name, state in self.states().items():
            state.clear()
            self.model[name].pop(key, None)

    @rule()
    def freeze(self):
        self.snapshots.append((self.backend.freeze(), copy.deepcopy(self.model)))

    @rule(count=st.integers(1, 20))
    def see_keys_that_leave_nothing(self, count):
        self.backend.places_of([f"passing {i}" for i in range(count)])
        self.backend._roomy = 0
        self.backend.clean_up(1)

    @rule(data=st.data())
    def release(self, data):
        if self.snapshots:
            place = data.draw(st.integers(0, len(self.snapshots) - 1))
            self.snapshots.pop(place)[0].release()

    def states(self):
        return {
            "value": self.value,
            "items": self.items,
            "entries": self.entries,
            "reduced": self.reduced,
        }

    @invariant()
    def the_live_state_is_what_was_done_to_it(self):
        assert contents(self.backend) == self.model

    @invariant()
    def every_snapshot_is_what_it_was(self):
        for frozen, model in self.snapshots:
            restored = HashMapBackend(ALL, GROUPS)
            restored.restore([frozen])
            assert contents(restored) == model


def contents(backend):
    keys = [] if backend._keys is None else backend._keys.values()
    return {
        name: {k: v for k, v in zip(keys, table.values, strict=True) if v is not None}
        for name, table in backend._tables.items()
    }


TestSnapshots = Snapshots.TestCase
TestSnapshots.settings = settings(deadline=None, max_examples=40, stateful_step_count=25)


@settings(deadline=None)
@given(
    st.dictionaries(st.text(max_size=3) | st.integers(-50, 50), st.integers(), max_size=60),
    st.integers(1, 5),
    st.integers(1, 5),
)
def test_a_rescaled_job_gives_each_key_to_one_subtask_with_its_value(entries, old, new):
    descriptor = ValueStateDescriptor("value")

    def subtasks(count):
        return [HashMapBackend(range_of(i, count, GROUPS), GROUPS) for i in range(count)]

    before = subtasks(old)
    for key, value in entries.items():
        owner = next(b for b in before if key_group_of(stable_hash(key), GROUPS) in b.key_groups)
        [owner.place] = owner.places_of([key])
        owner.value_state(descriptor).update(value)
        owner.processing_timers.register(value, key, owner.place)
    after = subtasks(new)
    frozen = [backend.freeze() for backend in before]
    for backend in after:
        backend.restore(frozen)
    found = [entry for backend in after for entry in contents(backend).get("value", {}).items()]
    assert sorted(found, key=repr) == sorted(entries.items(), key=repr)
    timers = [timer[:2] for backend in after for timer in backend.processing_timers.timers()]
    assert sorted(timers, key=repr) == sorted(((v, k) for k, v in entries.items()), key=repr)
    for backend in after:
        owned = {key_group_of(stable_hash(key), GROUPS) for key in backend.keys("value")}
        assert owned <= set(backend.key_groups)
