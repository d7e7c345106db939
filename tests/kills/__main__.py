"""Kill jobs until the time is up; a ledger tells of each kill, and where to go on."""

from __future__ import annotations

import argparse
import atexit
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tidegate.core.fault_points import DIRECTORY_VARIABLE

ROOT = Path(__file__).parents[2]
ARTIFACTS = ROOT / "artifacts"
_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.kills", description=__doc__)
    parser.add_argument("--minutes", type=float, default=5)
    parser.add_argument("--seed", type=int, help="default: that of the last time")
    parser.add_argument("--case", type=int, help="play this one alone")
    parser.add_argument("--ledger", type=Path, default=ARTIFACTS / "kills.jsonl")
    parser.add_argument("--report", action="store_true", help="only the table and the chart")
    options = parser.parse_args()
    if options.report:
        return _report(options.ledger)
    home = Path(tempfile.mkdtemp(prefix="kills-"))
    # Registered before multiprocessing is imported, so it comes after what that does at the end.
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    _set_environment(home)
    return _campaign(options, home)


def _set_environment(home: Path) -> None:
    """What drivers, Spark and its workers inherit."""
    for name in ("orders", "tmp", "jobs"):
        (home / name).mkdir()
    tempfile.tempdir = None
    os.environ |= {
        DIRECTORY_VARIABLE: str(home / "orders"),
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
    from tests.kills.cases import draw
    from tests.kills.run import EXACT, Run
    from tests.kills.servers import Servers
    from tests.kills.stage import Stage

    known = ledger.read(options.ledger)
    seed = options.seed
    if seed is None:
        seed = known[-1].seed if known else random.randrange(10**6)
    number = max((entry.case for entry in known if entry.seed == seed), default=-1) + 1
    if options.case is not None:
        number = options.case
    commit = _commit()
    deadline = time.monotonic() + 60 * options.minutes
    servers = Servers(ARTIFACTS / "kills-services")
    stage = Stage(draw(seed, number).stage, home)
    kills, bad = 0, 0
    try:
        while time.monotonic() < deadline:
            case = draw(seed, number)
            if case.stage != stage.kind:
                stage.kill()
                stage = Stage(case.stage, home)
            stage.start()
            outcome = Run(
                case, stage, servers, home, home / "orders", options.case is not None
            ).play()
            share = outcome.seconds / max(1, len(outcome.kills))
            entries = [
                ledger.Entry(
                    commit, seed, number, case.program, case.settings, kill.fault,
                    outcome.outcome, outcome.lost, outcome.doubled, round(share, 2),
                    outcome.actions, outcome.notes,
                )
                for kill in outcome.kills
            ]  # fmt: skip
            if options.case is None:
                ledger.append(options.ledger, entries)
            kills += len(entries)
            told = f"{outcome.outcome:6} {len(entries):3} kills in {outcome.seconds:5.1f} s"
            print(
                f"{told}  --seed {seed} --case {number} {case.program} {case.settings}", flush=True
            )
            for note in outcome.notes:
                print(f"    {note[:300]}", flush=True)
            if outcome.outcome != EXACT:
                bad += 1
                kept = ARTIFACTS / "kills" / case.name
                shutil.rmtree(kept, ignore_errors=True)
                shutil.copytree(home / case.name, kept, ignore_dangling_symlinks=True)
                shutil.copy(home / "spark.log", kept)
                shutil.rmtree(home / case.name, ignore_errors=True)
                stage.kill()
            number += 1
            if options.case is not None:
                break
    finally:
        stage.kill()
        servers.stop()
    print(f"{kills} kills, {bad} jobs gone wrong", flush=True)
    return int(bad > 0)


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
