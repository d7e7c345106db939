"""A change of any single bit of a savepoint is found when all of it is read."""

import shutil

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from tests.effort import examples
from tests.savepoints import restored, stored, use
from tidegate import state_reader
from tidegate.core.errors import CorruptCheckpoint, NoCheckpoint, UnsupportedFormat
from tidegate.core.modes import SavepointFormat
from tidegate.state.descriptors import ListStateDescriptor, ValueStateDescriptor
from tidegate.state.operator_state import OperatorStateStore
from tidegate.types.typeinfo import Types

TOTAL = ValueStateDescriptor("total", Types.LONG())
KEYS = 300
KINDS = {
    "canonical": ("hashmap", SavepointFormat.CANONICAL),
    "native hashmap": ("hashmap", SavepointFormat.NATIVE),
    "native rocksdb": ("rocksdb", SavepointFormat.NATIVE),
}


def fill(backend):
    total = backend.value_state(TOTAL)
    for key in range(KEYS):
        if use(backend, key):
            total.update(3 * key)
            backend.event_timers.register(1000 * key, key, backend.place)


def elements(subtask):
    store = OperatorStateStore()
    names = store.get_list_state(ListStateDescriptor("names", Types.STRING()))
    names.add_all([f"{subtask}: {number}" for number in range(200)])
    return store.freeze()


@pytest.fixture(scope="module", params=KINDS)
def savepoint(request, tmp_path_factory):
    backend, format = KINDS[request.param]
    return stored(
        tmp_path_factory.mktemp("savepoints") / "savepoint",
        {"totals": fill},
        backend=backend,
        format=format,
        states={"totals": [elements(0), elements(1)]},
        splits={"totals": [("file", 3), ("other", 7)]},
    )


def read_all(path):
    """Read everything that a job restores."""
    reader = state_reader(path)
    live = restored(reader, "totals", "hashmap")
    total = live.value_state(TOTAL)
    values = [total.value() for key in range(KEYS) if use(live, key)]
    live.close()
    return values, reader.elements("totals", "names")


def damaged(savepoint, directory, file, change):
    copy = directory / "copy"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(savepoint, copy)
    path = copy / file
    path.write_bytes(change(path.read_bytes()))
    return copy, path


def files_of(savepoint):
    files = (path for path in savepoint.rglob("*") if path.is_file())
    return sorted(str(path.relative_to(savepoint)) for path in files)


EXAMPLES = examples(25, suppress=[HealthCheck.function_scoped_fixture])


@EXAMPLES
@given(data=st.data())
def test_a_flipped_bit_is_found(savepoint, tmp_path, data):
    file = data.draw(st.sampled_from(files_of(savepoint)))
    size = (savepoint / file).stat().st_size
    bit = data.draw(st.integers(0, 8 * size - 1))

    def flip(content):
        changed = bytearray(content)
        changed[bit // 8] ^= 1 << bit % 8
        return bytes(changed)

    copy, path = damaged(savepoint, tmp_path, file, flip)
    with pytest.raises((CorruptCheckpoint, UnsupportedFormat)) as failure:
        read_all(copy)
    assert failure.value.args[0] == str(path)


@EXAMPLES
@given(data=st.data())
def test_a_cut_is_found(savepoint, tmp_path, data):
    file = data.draw(st.sampled_from(files_of(savepoint)))
    length = data.draw(st.integers(0, (savepoint / file).stat().st_size - 1))
    copy, path = damaged(savepoint, tmp_path, file, lambda content: content[:length])
    with pytest.raises(CorruptCheckpoint) as failure:
        read_all(copy)
    assert failure.value.args[0] == str(path)


def test_a_file_that_is_gone_is_named(savepoint, tmp_path):
    for file in files_of(savepoint):
        copy, path = damaged(savepoint, tmp_path, file, bytes)
        path.unlink()
        with pytest.raises((CorruptCheckpoint, NoCheckpoint)) as failure:
            read_all(copy)
        place = path.parent if file == "_metadata" else path
        assert failure.value.args[0] == str(place)


def test_what_is_not_changed_is_read(savepoint):
    values, names = read_all(savepoint)
    assert values == [3 * key for key in range(KEYS)]
    assert len(names) == 400
