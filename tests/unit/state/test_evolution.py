"""State whose type has got a field: stored by one program, taken over by the next."""

from dataclasses import field, make_dataclass
from datetime import timedelta

import pytest

from tests.savepoints import BACKENDS, GROUPS, stored, use
from tidegate.checkpoint.locate import open_checkpoint
from tidegate.core.clock import ManualClock
from tidegate.core.errors import StateMisuse, StateTypeChanged
from tidegate.core.modes import SavepointFormat
from tidegate.state.descriptors import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    ValueStateDescriptor,
)
from tidegate.state.keys.key_groups import range_of
from tidegate.state.operator_state import FrozenOperatorState, OperatorStateStore
from tidegate.state.snapshot.reader import StoredImage
from tidegate.types.row import Row
from tidegate.types.typeinfo import Types

OLD = Types.ROW_NAMED(["total"], [Types.LONG()])
NEW = Types.ROW_NAMED(
    ["total", "currency"], [Types.LONG(), Types.STRING()], defaults={"currency": "EUR"}
)
KEYS = [f"key {number}" for number in range(40)]
FORMATS = list(SavepointFormat)


def later(one, other):
    return other


class Latest:
    def create_accumulator(self):
        return None

    def add(self, value, accumulator):
        return value

    def get_result(self, accumulator):
        return accumulator


KINDS = {
    "value": lambda held: ValueStateDescriptor("state", held),
    "list": lambda held: ListStateDescriptor("state", held),
    "map": lambda held: MapStateDescriptor("state", Types.STRING(), held),
    "reducing": lambda held: ReducingStateDescriptor("state", later, held),
    "aggregating": lambda held: AggregatingStateDescriptor("state", Latest(), held),
}


def descriptor(kind, held, *, ttl=False):
    found = KINDS[kind](held)
    if ttl:
        found.enable_time_to_live(timedelta(days=1))
    return found


def handle_of(backend, declared):
    return getattr(backend, f"{declared.kind}_state")(declared)


def put(handle, kind, row):
    match kind:
        case "value":
            handle.update(row)
        case "map":
            handle.put("a", row)
        case _:
            handle.add(row)


def rows_in(handle, kind):
    match kind:
        case "value":
            return [handle.value()]
        case "map":
            return [handle.get("a")]
        case "list":
            return list(handle.get())
        case _:
            return [handle.get()]


def savepoint(path, kind="value", held=OLD, row=lambda n: Row(total=n), *, ttl=False, **how):
    declared = descriptor(kind, held, ttl=ttl)

    def fill(backend):
        handle = handle_of(backend, declared)
        for number, key in enumerate(KEYS):
            if use(backend, key):
                put(handle, kind, row(number))

    return stored(path, {"counts": fill}, **how)


def images(path):
    found = open_checkpoint(str(path))
    [record] = found.metadata.operators.values()
    handles = [handle.keyed for _, handle in sorted(record.subtasks.items())]
    return [StoredImage(handle, found.resolver()) for handle in handles]


def subtasks(backend, parallelism):
    return [BACKENDS[backend](range_of(i, parallelism, GROUPS), GROUPS) for i in range(parallelism)]


def taken_over(path, backend, parallelism, declared):
    """What every key has, after each subtask has opened its state and then restored it."""
    rows = {}
    for live in subtasks(backend, parallelism):
        handle = handle_of(live, declared)
        live.restore([i for i in images(path) if len(i.key_groups.intersection(live.key_groups))])
        for key in KEYS:
            if use(live, key):
                rows[key] = rows_in(handle, declared.kind)
        live.close()
    return rows


EXPECTED = {key: [Row(total=number, currency="EUR")] for number, key in enumerate(KEYS)}


@pytest.mark.parametrize("parallelism", [2, 3], ids=["same", "rescaled"])
@pytest.mark.parametrize("format", FORMATS, ids=lambda f: f.name)
@pytest.mark.parametrize("after", BACKENDS)
@pytest.mark.parametrize("before", BACKENDS)
def test_old_entries_get_the_default(before, after, format, parallelism, tmp_path):
    path = savepoint(tmp_path / "savepoint", backend=before, format=format)
    assert taken_over(path, after, parallelism, descriptor("value", NEW)) == EXPECTED


@pytest.mark.parametrize("ttl", [False, True], ids=["", "ttl"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("backend", BACKENDS)
def test_it_holds_for_every_kind_of_state(backend, kind, ttl, tmp_path):
    path = savepoint(tmp_path / "savepoint", kind, ttl=ttl, backend=backend)
    assert taken_over(path, backend, 2, descriptor(kind, NEW, ttl=ttl)) == EXPECTED


@pytest.mark.parametrize("format", FORMATS, ids=lambda f: f.name)
@pytest.mark.parametrize("backend", BACKENDS)
def test_a_state_that_is_declared_after_the_restore_is_converted_then(backend, format, tmp_path):
    path = savepoint(tmp_path / "savepoint", backend=backend, format=format, parallelism=1)
    [live] = subtasks(backend, 1)
    live.restore(images(path))
    frozen = live.freeze()
    use(live, KEYS[0])
    handle = live.value_state(descriptor("value", NEW))
    found = {key: rows_in(handle, "value") for key in KEYS if use(live, key)}
    assert found == EXPECTED
    [known] = live.freeze().metadata
    assert known.declaration == descriptor("value", NEW).declaration
    frozen.release()
    live.close()


@pytest.mark.parametrize("format", FORMATS, ids=lambda f: f.name)
@pytest.mark.parametrize("backend", BACKENDS)
def test_what_was_converted_is_stored_as_such_and_may_get_the_next_field(backend, format, tmp_path):
    path = savepoint(tmp_path / "first", backend=backend, format=format)

    def carry(live):
        live.value_state(descriptor("value", NEW))
        mine = [i for i in images(path) if len(i.key_groups.intersection(live.key_groups))]
        live.restore(mine)

    second = stored(tmp_path / "second", {"counts": carry}, backend=backend, format=format)
    assert taken_over(second, backend, 2, descriptor("value", NEW)) == EXPECTED
    newest = Types.ROW_NAMED(
        ["total", "currency", "city"], [Types.LONG(), Types.STRING(), Types.STRING()]
    )
    rows = taken_over(second, backend, 2, descriptor("value", newest))
    assert rows[KEYS[3]] == [Row(total=3, currency="EUR", city=None)]


@pytest.mark.parametrize("backend", BACKENDS)
def test_states_that_did_not_change_are_left_alone(backend, tmp_path):
    other = ValueStateDescriptor("other", Types.LONG())

    def fill(live):
        changing, staying = live.value_state(descriptor("value", OLD)), live.value_state(other)
        for number, key in enumerate(KEYS):
            if use(live, key):
                changing.update(Row(total=number))
                staying.update(number)
                live.event_timers.register(number, key, live.place)

    path = stored(tmp_path / "s", {"counts": fill}, backend=backend, parallelism=1)
    [live] = subtasks(backend, 1)
    changing, staying = live.value_state(descriptor("value", NEW)), live.value_state(other)
    live.restore(images(path))
    for number, key in enumerate(KEYS):
        use(live, key)
        assert (changing.value(), staying.value()) == (Row(total=number, currency="EUR"), number)
    assert len(live.event_timers) == len(KEYS)
    live.close()


def account(*fields):
    made = make_dataclass("Account", [("total", int), *fields])
    made.__module__ = __name__
    return made


@pytest.mark.parametrize("format", FORMATS, ids=lambda f: f.name)
@pytest.mark.parametrize("backend", BACKENDS)
def test_instances_of_a_dataclass_get_the_default_of_the_class(
    backend, format, tmp_path, monkeypatch
):
    old, new = account(), account(("currency", str, "EUR"), ("tags", list, field(default=None)))
    monkeypatch.setitem(globals(), "Account", old)
    path = savepoint(tmp_path / "s", held=old, row=old, backend=backend, format=format)
    monkeypatch.setitem(globals(), "Account", new)
    rows = taken_over(path, backend, 2, descriptor("value", new))
    assert rows == {key: [new(number, "EUR", None)] for number, key in enumerate(KEYS)}
    assert vars(rows[KEYS[0]][0]) == {"total": 0, "currency": "EUR", "tags": None}


# --- what is refused ------------------------------------------------------------------------------


def refusal(path, backend, declared):
    [live] = subtasks(backend, 1)
    handle_of(live, declared)
    with pytest.raises(StateTypeChanged) as failure:
        live.restore(images(path))
    live.close()
    return str(failure.value)


GONE = Types.ROW_NAMED(["sum"], [Types.LONG()])
CHANGED = Types.ROW_NAMED(["total"], [Types.DOUBLE()])


@pytest.mark.parametrize(
    ("declared", "reason"),
    [
        (descriptor("value", GONE), "field 'total' is gone, and 'sum' is new"),
        (descriptor("value", CHANGED), "field 'total' was Long and is Double now"),
        (descriptor("value", NEW, ttl=True), "a time to live cannot be added or removed"),
        (descriptor("list", NEW), "holds value state of RowTypeInfo(total: Long)"),
        (descriptor("value", None), "the type was row and is any value now"),
    ],
)
@pytest.mark.parametrize("backend", BACKENDS)
def test_other_changes_are_refused_with_the_reason(backend, declared, reason, tmp_path):
    path = savepoint(tmp_path / "savepoint", backend=backend, parallelism=1)
    said = refusal(path, backend, declared)
    assert reason in said
    assert said.endswith("give the new state another name, or declare it as it was")


def test_keys_of_a_map_state_stay_as_they_are(tmp_path):
    path = savepoint(tmp_path / "savepoint", "map", parallelism=1)
    declared = MapStateDescriptor("state", Types.LONG(), OLD)
    assert "the keys of the map have another type" in refusal(path, "hashmap", declared)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_value_that_was_not_what_was_declared_is_named(backend, tmp_path):
    path = savepoint(tmp_path / "savepoint", row=lambda n: n, backend=backend, parallelism=1)
    [live] = subtasks(backend, 1)
    live.value_state(descriptor("value", NEW))
    with pytest.raises(
        StateMisuse, match=r"state 'state' cannot get currency = 'EUR': .*is not a row"
    ):
        live.restore(images(path))
    live.close()


@pytest.mark.parametrize("backend", BACKENDS)
def test_one_program_declares_a_state_in_one_way(backend):
    [live] = subtasks(backend, 1)
    live.value_state(descriptor("value", OLD))
    with pytest.raises(StateTypeChanged):
        live.value_state(descriptor("value", NEW))
    live.close()


# --- operator state -------------------------------------------------------------------------------


def frozen_lists(ask, *elements):
    store = OperatorStateStore()
    getattr(store, ask)(ListStateDescriptor("buffer", OLD)).add_all(elements)
    return store.freeze()


def restored_store(states):
    store = OperatorStateStore()
    store.restore(states)
    return store


@pytest.mark.parametrize("ask", ["get_list_state", "get_union_list_state"])
def test_elements_of_operator_lists_get_the_default(ask):
    store = restored_store(frozen_lists(ask, Row(total=1), Row(total=2)))
    elements = getattr(store, ask)(ListStateDescriptor("buffer", NEW)).get()
    assert elements == [Row(total=1, currency="EUR"), Row(total=2, currency="EUR")]


def test_values_of_broadcast_state_get_the_default():
    store = OperatorStateStore()
    old = MapStateDescriptor("rules", Types.STRING(), OLD)
    store.get_broadcast_state(old).put("a", Row(total=1))
    found = restored_store(store.freeze()).get_broadcast_state(
        MapStateDescriptor("rules", Types.STRING(), NEW)
    )
    assert found.get("a") == Row(total=1, currency="EUR")


def test_elements_that_were_stored_without_a_structure_are_restored_as_what_they_were():
    [state] = frozen_lists("get_list_state", Row(total=1))
    *known, _ = state.__getstate__()
    older = object.__new__(FrozenOperatorState)
    older.__setstate__(known)
    assert older.structure is None
    store = restored_store([older])
    assert store.get_list_state(ListStateDescriptor("buffer", OLD)).get() == [Row(total=1)]
    with pytest.raises(StateTypeChanged):
        restored_store([older]).get_list_state(ListStateDescriptor("buffer", NEW))


def test_a_list_that_is_split_does_not_become_one_for_all():
    store = restored_store(frozen_lists("get_list_state", Row(total=1)))
    with pytest.raises(StateTypeChanged, match=r"split list state .* union list state"):
        store.get_union_list_state(ListStateDescriptor("buffer", NEW))


def test_expired_values_are_not_brought_back(tmp_path):
    clock = ManualClock(1_000.0)
    declared = descriptor("value", OLD, ttl=True)
    old = BACKENDS["hashmap"](range_of(0, 1, GROUPS), GROUPS, clock)
    state = old.value_state(declared)
    use(old, "a")
    state.update(Row(total=1))
    clock.advance(timedelta(hours=23).total_seconds())
    frozen = old.freeze()
    new = BACKENDS["hashmap"](range_of(0, 1, GROUPS), GROUPS, clock)
    taken = new.value_state(descriptor("value", NEW, ttl=True))
    new.restore([frozen])
    use(new, "a")
    assert taken.value() == Row(total=1, currency="EUR")
    clock.advance(timedelta(hours=2).total_seconds())
    assert taken.value() is None
