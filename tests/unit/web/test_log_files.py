import os
from pathlib import Path

from tidegate.web import log_files
from tidegate.web.registry import JobRecord


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


def test_the_log_of_spark_is_kept_while_its_job_runs(tmp_path, monkeypatch):
    monkeypatch.setattr(log_files, "_KEPT", 0)
    running = JobRecord(job_id="a", name="job", pid=17, started_at=0.0)
    monkeypatch.setattr(log_files, "running_jobs", lambda: [running])
    for pid in (7, 17):
        log_files.spark_log(tmp_path, "a job", pid).touch()
    log_files.remove_old(tmp_path)
    (log,) = tmp_path.iterdir()
    assert log.name.endswith("-17.spark.log")
