from tidegate.savepoint import browsing
from tidegate.savepoint.browsing import found_savepoints


def test_a_damaged_checkpoint_is_listed_as_what_it_is(tmp_path):
    for name in ("job/chk-7", "copied"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "_metadata").write_bytes(b"damaged")
    listed = found_savepoints([str(tmp_path)]).savepoints
    kinds = {each.path.removeprefix(f"{tmp_path}/"): each.kind for each in listed}
    assert kinds == {"job/chk-7": "checkpoint", "copied": "savepoint"}
    assert all(each.problem for each in listed)


def test_a_checkpoint_that_is_deleted_while_it_is_listed_is_not_shown(tmp_path, monkeypatch):
    """A running job deletes old checkpoints all the time."""
    checkpoint = tmp_path / "job/chk-7"
    checkpoint.mkdir(parents=True)
    (checkpoint / "_metadata").write_bytes(b"any")

    def opened(path):
        if path == str(checkpoint):
            (checkpoint / "_metadata").unlink(missing_ok=True)
        return open_checkpoint(path)

    open_checkpoint = browsing.open_checkpoint
    monkeypatch.setattr(browsing, "open_checkpoint", opened)
    assert found_savepoints([str(tmp_path)]).savepoints == []
