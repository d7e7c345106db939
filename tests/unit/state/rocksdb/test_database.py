"""What the database does beside what its backend's tests see."""

import rocksdict

from tidegate.state.rocksdb import database
from tidegate.state.rocksdb.database import Database


def test_nothing_waits_for_the_disk_while_other_threads_cannot_run(tmp_path, monkeypatch):
    """Creating a checkpoint keeps Python's lock, and so heartbeats, until files are written."""
    unwritten = []

    class Checkpoint:
        def __init__(self, rdict):
            unwritten.append(rdict.property_int_value("rocksdb.num-entries-active-mem-table"))
            self.create_checkpoint = rocksdict.Checkpoint(rdict).create_checkpoint

    monkeypatch.setattr(database, "Checkpoint", Checkpoint)
    data = Database(tmp_path / "data", 1 << 20)
    data.write([(b"a", b"1"), (b"b", b"2")])
    data.snapshot(tmp_path / "snapshot")
    data.close()
    assert unwritten == [0]
    linked = Database.read_only(tmp_path / "snapshot")
    assert list(linked.scan(b"a", b"z")) == [(b"a", b"1"), (b"b", b"2")]
    linked.close()
