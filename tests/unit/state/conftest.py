import pytest

from tidegate.state.keys.key_groups import range_of
from tidegate.state.memory.backend import HashMapBackend
from tidegate.state.rocksdb.backend import RocksDBBackend

GROUPS = 16


@pytest.fixture(params=["hashmap", "rocksdb"])
def a_backend(request, tmp_path):
    """Makes backends of either kind, for one of some subtasks."""
    made = []

    def make(subtask=0, parallelism=1, clock=None, groups=GROUPS):
        key_groups = range_of(subtask, parallelism, groups)
        if request.param == "hashmap":
            backend = HashMapBackend(key_groups, groups, clock)
        else:
            backend = RocksDBBackend(key_groups, groups, clock, tmp_path, 8 << 20)
        made.append(backend)
        return backend

    yield make
    for backend in made:
        backend.close()


@pytest.fixture
def restored(a_backend):
    def make(*frozen, **of):
        backend = a_backend(**of)
        backend.restore(frozen)
        return backend

    return make
