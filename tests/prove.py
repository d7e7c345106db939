"""Long proofs: tests with more effort than `make test` has, from seeds, until the time is up.

``python -m tests.prove --minutes 60 --seed 7`` runs one campaign after the other, in an order
that the seed gives, and writes each into a ledger. Started again, it continues after those; once
it is through with all of them, it begins the next round, with other seeds.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from itertools import count
from pathlib import Path

ROOT = Path(__file__).parent.parent
LEDGER = ROOT / "artifacts" / "proofs.jsonl"
PASSED, FAILED, UNFINISHED = "passed", "failed", "unfinished"
_GRACE_SECONDS = 60


@dataclass(frozen=True, slots=True)
class Campaign:
    tests: str
    """What pytest is asked for; also its name."""
    effort: float
    seconds: float
    """What it takes, roughly; the ledger knows better once it was run."""


_PROPERTIES = sorted((ROOT / "tests/properties").glob("test_*.py"))
_LONGER = {
    "test_damaged_checkpoints.py": (40, 600),
    "test_damaged_savepoints.py": (140, 600),
    "test_interrupted_programs.py": (60, 300),
    "test_savepoints.py": (20, 260),
    "test_planted_bugs.py": (1, 900),
    "test_simulation.py": (40, 600),
}
CAMPAIGNS = (
    *(
        Campaign(str(file.relative_to(ROOT)), *_LONGER.get(file.name, (10, 60)))
        for file in _PROPERTIES
    ),
    Campaign("tests/unit/operators/test_fusion.py", 25, 120),
    Campaign("tests/unit/web/test_fuzzed.py", 10, 120),
    Campaign("tests/dashboard/test_hours.py", 3, 400),
    Campaign("tests/spark/test_chaos.py -k hashmap-pipelined", 6, 150),
    Campaign("tests/spark/test_chaos.py -k hashmap-jobs", 6, 150),
    Campaign("tests/spark/test_chaos.py -k rocksdb-pipelined", 6, 150),
    Campaign("tests/spark/test_chaos.py -k rocksdb-jobs", 6, 150),
    Campaign("tests/cluster/test_cluster.py", 10, 150),
    Campaign("tests/services/test_hdfs.py", 10, 120),
    Campaign("tests/kills/test_kills.py", 3, 260),
    Campaign("tests/services/test_kafka_sink_jobs.py -k away", 2, 100),
    Campaign("tests/spark/test_soak.py", 10, 240),
    Campaign("tests/spark/test_verify.py -k pipelined", 3, 240),
    Campaign("tests/spark/test_verify.py -k jobs", 3, 240),
    Campaign("tests/spark/test_verify.py -k caught", 3, 100),
    Campaign("tests/services/test_verify.py -k to_kafka", 6, 200),
    Campaign("tests/services/test_verify.py -k to_postgresql", 6, 200),
    Campaign("tests/services/test_verify.py -k to_files", 6, 200),
)


@dataclass(frozen=True, slots=True)
class Proof:
    """A campaign that was run, as a line of the ledger."""

    seed: int
    round: int
    tests: str
    effort: float
    own_seed: int
    outcome: str
    seconds: float


Carry = Callable[[Campaign, int, float], tuple[str, float]]
"""Runs a campaign from a seed, for at most so many seconds; returns its outcome and its time."""


def prove(minutes: float, seed: int | None, ledger: Path, carry_out: Carry) -> list[Proof]:
    """Run what fits into the time and is not in the ledger yet; returns what was run."""
    lines = ledger.read_text().splitlines() if ledger.exists() else []
    known = [Proof(**json.loads(line)) for line in lines]
    if seed is None:
        seed = known[-1].seed if known else random.randrange(10**6)
    print(f"SEED={seed}", flush=True)
    done = {(p.round, p.tests) for p in known if p.seed == seed and p.outcome != UNFINISHED}
    expected = {each.tests: each.seconds for each in CAMPAIGNS}
    expected |= {p.tests: p.seconds for p in known}
    deadline = time.monotonic() + 60 * minutes
    proofs: list[Proof] = []
    for number in count(1):
        left_out = False
        for campaign, own_seed in _round(seed, number):
            if (number, campaign.tests) in done:
                continue
            left = deadline - time.monotonic()
            if left < expected[campaign.tests]:
                left_out = True
                continue
            outcome, seconds = carry_out(campaign, own_seed, left + _GRACE_SECONDS)
            proof = Proof(
                seed, number, campaign.tests, campaign.effort, own_seed, outcome, round(seconds, 1)
            )
            proofs.append(proof)
            ledger.parent.mkdir(exist_ok=True)
            with ledger.open("a") as file:
                file.write(json.dumps(asdict(proof)) + "\n")
        if left_out:
            break
    return proofs


def _round(seed: int, number: int) -> Iterator[tuple[Campaign, int]]:
    """Each campaign once, with a seed of its own."""
    rnd = random.Random(f"{seed}/{number}")
    for campaign in rnd.sample(CAMPAIGNS, len(CAMPAIGNS)):
        yield campaign, rnd.randrange(10**6)


def run(campaign: Campaign, seed: int, limit: float) -> tuple[str, float]:
    variables = {"TIDEGATE_EFFORT": f"{campaign.effort:g}", "TIDEGATE_SEED": str(seed)}
    command = ["-m", "pytest", "-q", *shlex.split(campaign.tests), f"--hypothesis-seed={seed}"]
    assigned = " ".join(f"{key}={value}" for key, value in variables.items())
    print(f"{assigned} python {shlex.join(command)}", flush=True)
    started = time.monotonic()
    with subprocess.Popen(
        [sys.executable, *command], cwd=ROOT, env={**os.environ, **variables}
    ) as process:
        try:
            outcome = FAILED if process.wait(limit) else PASSED
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGINT)  # so that pytest tidies up
            outcome = UNFINISHED
    return outcome, time.monotonic() - started


def main() -> int:
    parser = argparse.ArgumentParser(description="Run long proofs, as `make prove` does.")
    parser.add_argument("--minutes", type=float, required=True)
    parser.add_argument("--seed", type=int, help="default: that of the last time")
    options = parser.parse_args()
    proofs = prove(options.minutes, options.seed, LEDGER, run)
    for proof in proofs:
        print(f"{proof.outcome:10} {proof.seconds:6.0f} s  {proof.tests}")
    return int(any(proof.outcome == FAILED for proof in proofs))


if __name__ == "__main__":
    sys.exit(main())
