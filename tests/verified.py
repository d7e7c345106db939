"""`tidegate verify` as users start it."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.effort import seed
from tests.spark.scripts import environment
from tidegate.core.fault_points import FaultPoint

POINTS = [point.name.lower().replace("_", "-") for point in FaultPoint]


def some_points(count: int) -> list[str]:
    """So many points of the protocol, all of them if there are no more."""
    return random.Random(seed()).sample(POINTS, min(count, len(POINTS)))


def verify(
    tmp_path: Path,
    program: Path,
    *arguments: str,
    sink: str,
    kills: int,
    points: list[str],
    options: tuple[str, ...] = (),
) -> tuple[int, dict[str, Any]]:
    """Its exit code and its report."""
    command = [sys.executable, "-m", "tidegate", "verify", "--json", "--sink", sink, *options]
    command += ["--seed", str(seed()), "--kills", str(kills), "--directory", f"{tmp_path}/runs"]
    for point in points:
        command += ["--point", point]
    done = subprocess.run(
        [*command, str(program), *arguments],
        env=environment(tmp_path),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout, done.stderr
    report = json.loads(done.stdout)
    assert sum(point["kills"] for point in report["points"]) >= kills
    return done.returncode, report
