"""Kills jobs until the time is up; a ledger records each kill, and where to continue."""

from __future__ import annotations

import argparse
import atexit
import os
import random
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
ARTIFACTS = ROOT / "artifacts"
_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.kills", description=__doc__)
    parser.add_argument("--minutes", type=float, default=5)
    parser.add_argument("--jobs", type=int, default=2, help="how many run at once")
    parser.add_argument("--seed", type=int, help="default: that of the last campaign")
    parser.add_argument("--case", type=int, help="run only this case")
    parser.add_argument("--pumped", action="store_true", help="only jobs with pumps, also clusters")
    parser.add_argument("--ledger", type=Path, default=ARTIFACTS / "kills.jsonl")
    parser.add_argument("--report", action="store_true", help="only the table and the chart")
    options = parser.parse_args()
    if options.report:
        return _report(options.ledger)
    home = Path(tempfile.mkdtemp(prefix="kills-"))
    # Registered before multiprocessing is imported, so it runs after its exit handlers.
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    _set_environment(home)
    return _campaign(options, home)


def _set_environment(home: Path) -> None:
    """Set what drivers, Spark and its workers inherit."""
    for name in ("tmp", "jobs"):
        (home / name).mkdir()
    tempfile.tempdir = None
    os.environ |= {
        "TIDEGATE_HOME": str(home / "jobs"),
        "TMPDIR": str(home / "tmp"),
        "PYTHONPATH": str(ROOT),
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "OPENBLAS_NUM_THREADS": "1",
        "JAVA_TOOL_OPTIONS": f"{_JAVA} {os.environ.get('JAVA_TOOL_OPTIONS', '')}".strip(),
    }


def _campaign(options: argparse.Namespace, home: Path) -> int:
    from tests.kills import ledger
    from tests.kills.campaign import Campaign

    known = ledger.read(options.ledger)
    seed = options.seed
    if seed is None:
        seed = known[-1].seed if known else random.randrange(10**6)
    done = {entry.case for entry in known if entry.seed == seed}
    campaign = Campaign(seed, home, ARTIFACTS, options.ledger, _commit(), options.pumped)
    try:
        if options.case is not None:
            campaign.play_one(options.case)
        else:
            campaign.play(done, options.minutes, options.jobs)
    finally:
        campaign.end()
    print(f"{campaign.kills} kills, {campaign.bad} jobs gone wrong", flush=True)
    return int(campaign.bad > 0)


def _commit() -> str:
    command = ["git", "rev-parse", "--short", "HEAD"]
    return subprocess.check_output(command, cwd=ROOT, text=True).strip()


def _report(path: Path) -> int:
    from tests.kills import ledger

    entries = ledger.read(path)
    print(f"{ledger.summary(entries)}\n\n{ledger.table(entries)}")
    (ROOT / "docs" / "proof-kills.svg").write_text(ledger.chart(entries))
    return 0


if __name__ == "__main__":
    sys.exit(main())
