import os
from pathlib import Path

from tidegate.web import log_files


def test_a_large_log_is_rotated_under_its_writers(tmp_path, monkeypatch):
    monkeypatch.setattr(log_files, "_MOST_BYTES", 100)
    log = tmp_path / "job.log"
    with log.open("ab", buffering=0) as file:
        for number in range(1000):
            file.write(f"line {number}\n".encode())
            log_files.rotate(log)
            assert log.stat().st_size <= 100 + 10
    old, new = Path(f"{log}.1").read_text(), log.read_text()
    lines = (old + new).splitlines()
    assert lines == [f"line {number}" for number in range(1000 - len(lines), 1000)]


def test_only_the_latest_logs_are_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(log_files, "_KEPT", 2)
    for number in range(5):
        for name in (f"{number}.log", f"{number}.log.1"):
            (tmp_path / name).touch()
            os.utime(tmp_path / name, (number, number))
    log_files.remove_old(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "3.log",
        "3.log.1",
        "4.log",
        "4.log.1",
    ]
