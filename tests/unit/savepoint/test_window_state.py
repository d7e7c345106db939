"""The state of windows as data: key, window start, window end, value."""

import pytest

from tests.savepoints import BACKENDS, GROUPS, restored, stored
from tidegate.core.modes import SavepointFormat
from tidegate.datastream.window import CountWindow, GlobalWindow, TimeWindow, Window
from tidegate.operators.windows.windows import state_key, window_of
from tidegate.savepoint import state_reader
from tidegate.state.descriptors import ListStateDescriptor, ValueStateDescriptor
from tidegate.state.keys.window_keys import hash_keys, window_key
from tidegate.state.snapshot.reader import StoredImage

STATE = ListStateDescriptor("window-contents")


class Season(Window):
    """A window of the user's own."""

    def __init__(self, year, name):
        self.year = year
        self.name = name

    def max_timestamp(self):
        return self.year

    def __eq__(self, other):
        return isinstance(other, Season) and vars(self) == vars(other)

    def __hash__(self):
        return hash((self.year, self.name))


WINDOWS = {
    "time": [TimeWindow(0, 10), TimeWindow(10, 20)],
    "count": [CountWindow(3), CountWindow(4)],
    "global": [GlobalWindow.get()],
    "own": [Season(1789, "summer"), Season(1790, "spring")],
    "mixed": [TimeWindow(0, 10), GlobalWindow.get()],
}
KEYS = ["a", "b", ("c", 1), 2.5]


def contents(windows):
    return {
        state_key(key, window): [number, key]
        for number, window in enumerate(windows)
        for key in KEYS
    }


def filled(windows):
    def fill(backend):
        table = backend.table(STATE)
        own = [
            (key, value)
            for key, value in contents(windows).items()
            if int(hash_keys([key])[0]) % GROUPS in backend.key_groups
        ]
        places = backend.places_of([key for key, _ in own])
        for place, (key, value) in zip(places, own, strict=True):
            table.values[place] = value
            backend.event_timers.register(5, key, place)

    return fill


@pytest.mark.parametrize("kind", sorted(WINDOWS))
@pytest.mark.parametrize("format", list(SavepointFormat))
@pytest.mark.parametrize("backend", sorted(BACKENDS))
def test_state_of_windows_comes_back_from_every_format(tmp_path, kind, format, backend):
    windows = WINDOWS[kind]
    path = stored(tmp_path / "sp", {"op": filled(windows)}, backend=backend, format=format)
    reader = state_reader(path)
    expected = {(key[1], window_of(key)): value for key, value in contents(windows).items()}
    assert {tuple(key): value for key, value in reader.entries("op", STATE.name)} == expected
    timers = {tuple(key) for key, at in reader.entries("op", "_timers/event-time") if at == 5}
    assert timers == set(expected)
    for again in BACKENDS:
        live = restored(reader, "op", again)
        table = live.table(STATE)
        keys = list(contents(windows))
        values = [table.values[place] for place in live.places_of(keys)]
        assert values == list(contents(windows).values())
        assert {timer.key for timer in live.event_timers.timers()} == set(keys)
        live.close()


def rows_of(reader, name):
    handles = [h.keyed for h in reader.operator("op").subtasks.values()]
    return [
        row
        for handle in handles
        for table in StoredImage(handle, reader.resolve).tables(name)
        for number in range(len(table.handle.row_groups))
        for row in table.rows(number).to_pylist()
    ]


def test_a_table_has_the_start_and_the_end_of_each_window(tmp_path):
    def fill(backend):
        table = backend.table(ValueStateDescriptor("sum"))
        keys = [window_key(key, start, start + 10) for key in "ab" for start in (0, 10)]
        own = [key for key in keys if int(hash_keys([key])[0]) % GROUPS in backend.key_groups]
        for place, key in zip(backend.places_of(own), own, strict=True):
            table.values[place] = key[2]

    reader = state_reader(stored(tmp_path / "sp", {"op": fill}))
    rows = sorted(
        (r["key"], r["window_start"], r["window_end"], r["value"], r["pickled"])
        for r in rows_of(reader, "sum")
    )
    assert rows == [
        ("a", 0, 10, 0, None),
        ("a", 10, 20, 10, None),
        ("b", 0, 10, 0, None),
        ("b", 10, 20, 10, None),
    ]


def test_the_windows_of_a_key_are_in_its_key_group():
    keys = ["a", window_key("a", 0, 10), window_key("a"), ("a", 0, 10)]
    hashes = hash_keys(keys).tolist()
    assert hashes[0] == hashes[1] == hashes[2] != hashes[3]
