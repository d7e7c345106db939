"""Savepoints that are deleted: their own files, and no others."""

import shutil

import pytest

from tests.savepoints import stored, use
from tidegate import dispose_savepoint
from tidegate.core.errors import NoCheckpoint
from tidegate.core.modes import SavepointFormat
from tidegate.state.descriptors import ValueStateDescriptor
from tidegate.types.typeinfo import Types

TOTAL = ValueStateDescriptor("total", Types.LONG())


def fill(backend):
    total = backend.value_state(TOTAL)
    for key in range(500):
        if use(backend, key):
            total.update(key)


@pytest.fixture(params=["hashmap canonical", "hashmap native", "rocksdb native"])
def savepoint(request, tmp_path):
    backend, _, format = request.param.partition(" ")
    form = SavepointFormat[format.upper()]
    path = tmp_path / "savepoints" / "savepoint-1"
    return stored(path, {"totals": fill}, backend=backend, format=form)


def test_nothing_of_it_stays_and_its_neighbour_does(savepoint):
    neighbour = shutil.copytree(savepoint, savepoint.with_name("savepoint-2"))
    assert dispose_savepoint(savepoint) == ()
    assert list(savepoint.parent.iterdir()) == [neighbour]
    dispose_savepoint(neighbour / "_metadata")
    assert list(savepoint.parent.iterdir()) == []


def test_files_of_others_in_its_directory_stay(savepoint):
    (savepoint / "notes.txt").write_text("taken before the upgrade")
    (savepoint / "state" / "exports").mkdir(parents=True)
    (savepoint / "state" / "exports" / "totals.csv").write_text("1,2")
    assert dispose_savepoint(savepoint) == ("notes.txt", "state/exports/totals.csv")
    left = {path.name for path in savepoint.rglob("*") if path.is_file()}
    assert left == {"notes.txt", "totals.csv"}
    with pytest.raises(NoCheckpoint, match="there is no savepoint"):
        dispose_savepoint(savepoint)


def test_a_write_that_was_interrupted_is_no_file_of_others(savepoint):
    (savepoint / "._metadata.0123456789abcdef.tmp").write_bytes(b"half")
    assert dispose_savepoint(savepoint) == ()
    assert not savepoint.exists()


def test_a_link_to_it_means_what_it_leads_to(savepoint, tmp_path):
    link = tmp_path / "current"
    link.symlink_to(savepoint)
    dispose_savepoint(link)
    assert not savepoint.exists()


def test_a_link_in_it_is_not_followed(savepoint, tmp_path):
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "file").touch()
    (savepoint / "link").symlink_to(tmp_path / "precious")
    dispose_savepoint(savepoint)
    assert (tmp_path / "precious" / "file").exists()


@pytest.mark.parametrize("path", ["", "savepoints", "home", "home/notes.txt", "nowhere"])
def test_what_is_no_savepoint_is_left_alone(savepoint, tmp_path, path):
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "notes.txt").touch()
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(NoCheckpoint, match="there is no savepoint; specify the path of one"):
        dispose_savepoint(tmp_path / path)
    assert sorted(tmp_path.rglob("*")) == before
