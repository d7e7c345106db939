"""A snapshot never changes; after a restore, each key has one owner."""

import copy

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tests.effort import examples
from tidegate.state.descriptors import (
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    ValueStateDescriptor,
)
from tidegate.state.keys.key_groups import KeyGroupRange, range_of
from tidegate.state.keys.stable_hash import stable_hash
from tidegate.state.memory.backend import HashMapBackend
from tidegate.state.rocksdb.backend import RocksDBBackend

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
    """State is changed in all ways, even in place, with any number of open snapshots."""

    make = HashMapBackend

    @initialize()
    def open(self):
        self.backend = self.make(ALL, GROUPS)
        self.value = self.backend.value_state(ValueStateDescriptor("value"))
        self.items = self.backend.list_state(ListStateDescriptor("items"))
        self.entries = self.backend.map_state(MapStateDescriptor("entries"))
        self.reduced = self.backend.reducing_state(ReducingStateDescriptor("reduced", joined))
        self.model = {"value": {}, "items": {}, "entries": {}, "reduced": {}, "timers": {}}
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
        self.give_back(count)

    def give_back(self, count):
        self.backend._roomy = 0
        self.backend.clean_up(1)

    @rule(key=KEYS, time=st.integers(0, 3))
    def register_a_timer(self, key, time):
        self.use(key)
        self.backend.event_timers.register(time, key, self.backend.place)
        self.model["timers"][time, key] = True

    @rule(key=KEYS, time=st.integers(0, 3))
    def delete_a_timer(self, key, time):
        self.backend.event_timers.delete(time, key)
        self.model["timers"].pop((time, key), None)

    @rule(now=st.integers(0, 3))
    def fire_timers(self, now):
        self.backend.ready_timers(self.backend.event_timers, now)
        while (timer := self.backend.event_timers.pop_due(now)) is not None:
            timestamp, key, self.backend.place = timer
            assert self.value.value() == self.model["value"].get(key)
            assert self.model["timers"].pop((timestamp, key))
        assert all(time > now for time, _ in self.model["timers"])

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
            for make in (self.make, HashMapBackend):
                restored = make(ALL, GROUPS)
                restored.restore([frozen])
                assert contents(restored) == model
                restored.close()

    def teardown(self):
        self.backend.close()
        for frozen, _ in self.snapshots:
            frozen.release()


class RocksDBSnapshots(Snapshots):
    """The same, with keys that move between memory and the database."""

    make = RocksDBBackend

    def give_back(self, count):
        self.backend.clean_up(1)
        self.backend.shrink(count % 4)

    @rule(keys=st.lists(KEYS, min_size=1))
    def read_a_batch_of_keys(self, keys):
        places = self.backend.places_of(keys)
        for self.backend.place, key in zip(places, keys, strict=True):
            assert self.value.value() == self.model["value"].get(key)


def contents(backend):
    """All state of a backend, read like its users do."""
    states = {
        "value": backend.value_state(ValueStateDescriptor("value")).value,
        "items": backend.list_state(ListStateDescriptor("items")).get,
        "entries": lambda: dict(entries.items()),
        "reduced": backend.reducing_state(ReducingStateDescriptor("reduced", joined)).get,
    }
    entries = backend.map_state(MapStateDescriptor("entries"))
    held = {name: {} for name in states}
    for name, read in states.items():
        for key in backend.keys(name):
            [backend.place] = backend.places_of([key])
            held[name][key] = copy.deepcopy(read())
    held["timers"] = {timer[:2]: True for timer in backend.event_timers.timers()}
    return held


TestSnapshots = Snapshots.TestCase
TestSnapshots.settings = examples(15, stateful_step_count=25)
TestRocksDBSnapshots = pytest.mark.slow(RocksDBSnapshots.TestCase)
TestRocksDBSnapshots.settings = examples(5, stateful_step_count=20)


BACKENDS = st.sampled_from([HashMapBackend, RocksDBBackend])


@examples(25)
@given(
    st.dictionaries(st.text(max_size=3) | st.integers(-50, 50), st.integers(), max_size=60),
    st.integers(1, 5),
    st.integers(1, 5),
    BACKENDS,
    BACKENDS,
)
def test_a_rescaled_job_gives_each_key_to_one_subtask_with_its_value(
    entries, old, new, first, second
):
    descriptor = ValueStateDescriptor("value")

    def subtasks(count, make):
        return [make(range_of(i, count, GROUPS), GROUPS) for i in range(count)]

    before = subtasks(old, first)
    for key, value in entries.items():
        owner = next(b for b in before if stable_hash(key) % GROUPS in b.key_groups)
        [owner.place] = owner.places_of([key])
        owner.value_state(descriptor).update(value)
        owner.processing_timers.register(value % 2**60, key, owner.place)
    after = subtasks(new, second)
    frozen = [backend.freeze() for backend in before]
    found, timers = [], []
    for backend in after:
        backend.restore(frozen)
        state = backend.value_state(descriptor)
        keys = list(backend.keys("value"))
        places = backend.places_of(keys)
        for key, backend.place in zip(keys, places, strict=True):
            found.append((key, state.value()))
        timers += [timer[:2] for timer in backend.processing_timers.timers()]
        owned = {stable_hash(key) % GROUPS for key in keys}
        assert owned <= set(backend.key_groups)
    assert sorted(found, key=repr) == sorted(entries.items(), key=repr)
    expected = ((value % 2**60, key) for key, value in entries.items())
    assert sorted(timers, key=repr) == sorted(expected, key=repr)
    for backend in (*before, *after):
        backend.close()
