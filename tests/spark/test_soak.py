import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.effort import times

pytestmark = [pytest.mark.soak, pytest.mark.prove, pytest.mark.timeout(1800)]


@pytest.mark.parametrize(("exchange", "steps"), [("jobs", 500), ("pipelined", 10_000)])
def test_many_steps_leave_nothing_behind(exchange, steps):
    """Compares the second sample, when everything is warm, with the last."""
    steps = times(steps)
    program = Path(__file__).with_name("soak_program.py")
    done = subprocess.run(
        [sys.executable, str(program), exchange, str(steps), str(steps // 5)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    samples = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    warm, last = samples[1], samples[-1]
    assert last["steps"] >= steps
    assert last["shuffle_files"] <= warm["shuffle_files"] + 20, samples
    for role in ("driver", "python"):
        assert last[role]["megabytes"] <= warm[role]["megabytes"] + 30, samples
        assert last[role]["threads"] <= warm[role]["threads"] + 4, samples
        assert last[role]["files"] <= warm[role]["files"] + 10, samples
    # A heap grows to its limit before it is collected; threads of finished tasks linger a while.
    assert last["jvm"]["megabytes"] <= 1100, samples
    assert last["jvm"]["threads"] <= warm["jvm"]["threads"] + 200, samples
    assert last["jvm"]["files"] <= warm["jvm"]["files"] + 30, samples
