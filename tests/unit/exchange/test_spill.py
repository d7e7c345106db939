import errno
import os

import psutil
import pytest

from tidegate.core.errors import ExternalError
from tidegate.exchange.spill import SpilledBytes, SpillStore, loaded


@pytest.fixture
def store(tmp_path):
    return SpillStore(tmp_path, budget=10)


def test_bytes_within_the_budget_stay_in_memory(store):
    body = b"0123456789"
    assert store.keep(body) is body
    assert store.bytes_spilled == 0


def test_bytes_past_the_budget_go_to_a_file_and_come_back(store):
    store.keep(b"01234567")
    kept = [store.keep(body) for body in (b"first", bytearray(b"second"), memoryview(b"third"))]
    assert all(isinstance(body, SpilledBytes) for body in kept)
    assert [len(body) for body in kept] == [5, 6, 5]
    assert [loaded(body) for body in kept] == [b"first", b"second", b"third"]
    assert loaded(kept[0]) == b"first", "as often as Spark asks"
    assert store.bytes_spilled == 16


def test_what_still_fits_stays_in_memory_though_something_larger_did_not(store):
    assert isinstance(store.keep(b"x" * 11), SpilledBytes)
    assert store.keep(b"x" * 10) == b"x" * 10


def test_a_spill_file_has_no_name_and_so_leaves_nothing(store, tmp_path):
    kept = store.keep(b"x" * 11)
    assert list(tmp_path.iterdir()) == []
    assert loaded(kept) == b"x" * 11


def test_the_budget_is_whole_again_in_the_next_step(store):
    store.keep(b"x" * 10)
    old = store.keep(b"old")
    store.end_step()
    assert store.keep(b"y" * 10) == b"y" * 10
    assert loaded(old) == b"old", "a sealed answer is readable as long as somebody has it"


def test_a_file_goes_with_the_last_that_points_into_it(store):
    open_files = psutil.Process().num_fds
    before = open_files()
    kept = [store.keep(b"x" * 11) for _ in range(3)]
    assert open_files() == before + 1
    store.end_step()
    del kept
    assert open_files() == before


def test_a_full_disk_says_what_to_do(store, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "pwrite", full)
    with pytest.raises(ExternalError, match=r"No space left.*free disk space.*spill-threshold"):
        store.keep(b"x" * 11)


def test_a_disk_that_cannot_be_read_is_not_taken_for_a_fault_of_the_user(store, monkeypatch):
    kept = store.keep(bytes(1 << 20))
    assert isinstance(kept, SpilledBytes)

    def broken(*_):
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "pread", broken)
    with pytest.raises(ExternalError, match=r"cannot be read back from .*Input/output error"):
        loaded(kept)


def test_a_directory_that_is_gone_says_so(tmp_path):
    store = SpillStore(tmp_path / "gone", budget=0)
    with pytest.raises(ExternalError, match="cannot be written"):
        store.keep(b"x")
