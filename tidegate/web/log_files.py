"""The log files of jobs: those of detached ones are bounded, and old ones are removed."""

from __future__ import annotations

import os
import re
import shutil
import threading
import time
from contextlib import suppress
from pathlib import Path

from tidegate.web.registry import running_jobs

_MOST_BYTES = 64 << 20
_KEPT = 50
_LOOK_SECONDS = 1.0


def spark_log(directory: Path, job_name: str, pid: int) -> Path:
    """The file for the logs of Spark, if a job that is not detached starts it in this process."""
    name = re.sub(r"\W+", "-", job_name)
    return directory / f"{name}-{time.strftime('%Y%m%d-%H%M%S')}-{pid}.spark.log"


def earlier(log: Path) -> Path:
    """The file with the older half of a log."""
    return log.with_name(f"{log.name}.1")


def keep_bounded(log: Path) -> None:
    """Rotate the log of this process while it lives."""

    def watch() -> None:
        while True:
            rotate(log)
            time.sleep(_LOOK_SECONDS)

    threading.Thread(target=watch, name="tidegate-log", daemon=True).start()


def rotate(log: Path) -> None:
    """Move the contents of a large log to another file, and continue at its start.

    Spark's processes write to the same open file, so it is truncated, not replaced.
    """
    try:
        if log.stat().st_size > _MOST_BYTES:
            shutil.copyfile(log, earlier(log))
            os.truncate(log, 0)
    except OSError:
        pass  # it is gone, or the disk is full: the job matters more


def remove_old(directory: Path) -> None:
    """Keep the latest logs, and those of running jobs."""
    running = running_jobs()
    in_use = {record.log for record in running}
    endings = tuple(f"-{record.pid}.spark.log" for record in running)
    ages: dict[Path, float] = {}
    for log in directory.glob("*.log"):
        with suppress(FileNotFoundError):  # another process removes old ones, too
            ages[log] = log.stat().st_mtime
    for log in sorted(ages, key=ages.__getitem__, reverse=True)[_KEPT:]:
        if str(log) not in in_use and not log.name.endswith(endings):
            log.unlink(missing_ok=True)
            earlier(log).unlink(missing_ok=True)
