"""Run one peer on one order: its process, what it used, and whether its totals are right."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from enum import Enum, auto
from itertools import pairwise
from pathlib import Path
from typing import Any

import psutil

from benchmarks.cases import Case, Workload
from benchmarks.environments import CannotBeHad, EnvironmentCache, Interpreter
from benchmarks.peers.protocol import RESULT_MARK, TAIL, Order, Window, steady_window
from benchmarks.peers.rule import expected_checksum
from benchmarks.plan import Sizes, order_for
from benchmarks.registry import Peer

ROOT = Path(__file__).resolve().parent.parent
SAMPLE_SECONDS = 0.5
RARE_SAMPLE_SECONDS = 5.0
"""While latencies are measured: a sample takes tens of milliseconds of a core."""
SOAK_MARKS = (10, 30, 100, 300, 1_000)
"""In millions of records: the soak's cost per record is told between one and the next."""
MEGABYTE = 1_000_000


@dataclass
class Measurement:
    """One peer on one case, once. `failure` is a sentence, and then there are no numbers."""

    peer: str
    case: str
    keys: int
    workload: str
    repeat: int
    load_before: float
    failure: str | None = None
    verified: bool = False
    rate: float | None = None
    window_seconds: float | None = None
    steady: bool | None = None
    records: int = 0
    results_per_record: float | None = None
    commit_interval: float | None = None
    measures: dict[str, float] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    versions: dict[str, str] = field(default_factory=dict)
    order: dict[str, Any] = field(default_factory=dict)
    samples: list[tuple[float, int]] = field(default_factory=list)


@dataclass(frozen=True)
class Usage:
    """What a process and all it started used, at one moment."""

    at: float
    python_cpu: float
    java_cpu: float
    python_bytes: int
    java_bytes: int


class Kind(Enum):
    PYTHON = auto()
    JAVA = auto()
    OTHER = auto()


class Watcher:
    """Samples CPU and memory of a process tree from outside, by kind of process."""

    def __init__(self, pid: int, every_seconds: float = SAMPLE_SECONDS) -> None:
        self._root = psutil.Process(pid)
        self._every_seconds = every_seconds
        self._seen: dict[psutil.Process, tuple[Kind, float]] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.usage: list[Usage] = []
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()

    def end_what_is_left(self) -> None:
        """End processes that outlived the peer's program: only those it was seen to start."""
        left = [process for process in self._seen if process.is_running()]
        for process in left:
            try:
                process.kill()
            except psutil.NoSuchProcess:
                continue
        psutil.wait_procs(left, timeout=10)

    def _run(self) -> None:
        while not self._stop.wait(self._every_seconds):
            self._sample()

    def _sample(self) -> None:
        try:
            tree = [self._root, *self._root.children(recursive=True)]
        except psutil.NoSuchProcess:
            return
        memory = dict.fromkeys(Kind, 0)
        for process in tree:
            try:
                kind = kind_of(process.name())
                times = process.cpu_times()
                memory[kind] += _memory(process, kind)
            except (psutil.NoSuchProcess, psutil.AccessDenied):
                continue
            self._seen[process] = (kind, times.user + times.system)
        cpu = dict.fromkeys(Kind, 0.0)
        for kind, seconds in self._seen.values():
            cpu[kind] += seconds
        self.usage.append(
            Usage(
                at=time.time(),
                python_cpu=cpu[Kind.PYTHON],
                java_cpu=cpu[Kind.JAVA],
                python_bytes=memory[Kind.PYTHON],
                java_bytes=memory[Kind.JAVA],
            )
        )


def kind_of(name: str) -> Kind:
    """What a process is, by its name.

    A child that a JVM is about to start bears the name of a thread and, until it becomes another
    program, all of the JVM's memory: counted as anything it would count a gigabyte twice.
    """
    if name.startswith("python"):
        return Kind.PYTHON
    return Kind.JAVA if name == "java" else Kind.OTHER


def _memory(process: psutil.Process, kind: Kind) -> int:
    """Resident memory; of Python the proportional share, as forked workers share pages."""
    if kind is Kind.OTHER:
        return 0
    if kind is Kind.JAVA:
        return int(process.memory_info().rss)
    full = process.memory_full_info()
    return int(getattr(full, "pss", 0) or full.rss)


def measure(
    peer: Peer,
    case: Case,
    sizes: Sizes,
    environments: EnvironmentCache,
    *,
    repeat: int,
    thorough: bool,
) -> Measurement:
    """Measure a peer; a bounded run whose window came out too short is repeated, larger, once.

    Raises:
        CannotBeHad: the peer's environment cannot be made.
    """
    if not _program(peer, case).exists():
        raise CannotBeHad(f"{_program(peer, case).relative_to(ROOT)} is not written yet")
    interpreter = environments.interpreter(peer.environment)
    done = _once(peer, case, sizes, interpreter, repeat, scale=1.0)
    short = done.window_seconds is not None and done.window_seconds < sizes.seconds / 2
    if thorough and short and done.failure is None and case.workload is not Workload.SOAK:
        assert done.window_seconds is not None
        scale = min(10.0, 1.2 * sizes.seconds / max(done.window_seconds, 0.1))
        done = _once(peer, case, sizes, interpreter, repeat, scale=scale)
    return done


def _program(peer: Peer, case: Case) -> Path:
    return ROOT / (peer.modules[case.workload].replace(".", "/") + ".py")


def _once(
    peer: Peer, case: Case, sizes: Sizes, interpreter: Interpreter, repeat: int, scale: float
) -> Measurement:
    scratch = tempfile.mkdtemp(prefix="tidegate-benchmark-")
    order = order_for(peer, case, sizes, scratch, scale)
    done = Measurement(
        peer=peer.name,
        case=case.name,
        keys=case.keys,
        workload=case.workload.value,
        repeat=repeat,
        load_before=os.getloadavg()[0],
        order={key: value for key, value in asdict(order).items() if key != "scratch"},
    )
    limit = sizes.time_limit if case.workload is not Workload.SOAK else 24 * 3600.0
    try:
        answer, usage = _start(peer.modules[case.workload], order, interpreter, limit)
        _evaluate(done, answer, usage, order)
    except PeerFailed as failed:
        done.failure = str(failed)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return done


class PeerFailed(Exception):
    """A peer's program ended without a usable result; its text says how."""


def _start(
    module: str, order: Order, interpreter: Interpreter, limit: float
) -> tuple[dict[str, Any], list[Usage]]:
    command = [str(interpreter.python), "-m", module, json.dumps(asdict(order))]
    scratch = Path(order.scratch)
    variables = {**os.environ, **interpreter.variables, "PYTHONUNBUFFERED": "1"}
    # The peers' programs find this package by the working directory, and nothing else of ours.
    variables.pop("PYTHONPATH", None)
    with (scratch / "stdout").open("w") as out, (scratch / "stderr").open("w") as err:
        process = subprocess.Popen(
            command, cwd=ROOT, env=variables, stdin=subprocess.DEVNULL, stdout=out, stderr=err
        )
        is_timed = order.workload in (Workload.LATENCY, Workload.COMMITTED)
        watcher = Watcher(process.pid, RARE_SAMPLE_SECONDS if is_timed else SAMPLE_SECONDS)
        try:
            process.wait(limit)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise PeerFailed(f"no result after {limit:.0f} s") from None
        finally:
            if process.poll() is None:
                process.kill()
            watcher.stop()
            watcher.end_what_is_left()
    answer = find_result((scratch / "stdout").read_text(errors="replace").splitlines())
    if answer is None:
        said = (scratch / "stderr").read_text(errors="replace").strip().splitlines()
        told = " | ".join(line.strip() for line in said[-4:])
        raise PeerFailed(f"ended with code {process.returncode} and no result: {told[-600:]}")
    return answer, watcher.usage


def find_result(lines: Sequence[str]) -> dict[str, Any] | None:
    """The result among whatever else a program printed."""
    for line in reversed(lines):
        if line.startswith("{") and RESULT_MARK in line:
            found: dict[str, Any] = json.loads(line)
            return found
    return None


def _evaluate(done: Measurement, answer: dict[str, Any], usage: list[Usage], order: Order) -> None:
    done.records = answer["records"]
    done.commit_interval = answer["commit_interval"]
    done.notes = answer["notes"]
    done.versions = answer["versions"]
    done.measures.update(answer["measures"])
    done.samples = [(at, count) for at, count in answer["samples"]]
    if answer["emitted"] is not None and done.records:
        done.results_per_record = answer["emitted"] / done.records
    wrong = wrong_checks(answer, order)
    if wrong:
        raise PeerFailed("wrong result: " + "; ".join(wrong))
    done.verified = bool(answer["checks"])
    if usage:
        done.measures["python_peak_mb"] = max(u.python_bytes for u in usage) / MEGABYTE
        done.measures["java_peak_mb"] = max(u.java_bytes for u in usage) / MEGABYTE
    if not done.samples:
        return
    window = steady_window(done.samples, order=order, total=done.records, bounded=answer["bounded"])
    done.rate, done.window_seconds, done.steady = window.rate, window.seconds, window.steady
    done.measures.update(_cost(window, usage))
    if order.workload == Workload.SOAK.value:
        done.measures.update(soak_costs(done.samples))
    if done.records < order.keys:
        done.notes.append(f"only {done.records:,} of the keys were touched")


def wrong_checks(answer: dict[str, Any], order: Order) -> list[str]:
    """The checks of a result that do not hold, as sentences."""
    wrong = []
    for check in answer["checks"]:
        expected = expected_checksum(order.workload, check["records"], order.keys)
        if check["checksum"] != expected:
            wrong.append(
                f"{check['what']}: {check['checksum']} where {check['records']:,} records"
                f" give {expected}"
            )
    counted = answer["bounded"] and answer["samples"]
    if counted and answer["records"] != order.records:
        wrong.append(f"{answer['records']:,} records arrived of {order.records:,}")
    return wrong


def _cost(window: Window, usage: list[Usage]) -> dict[str, float]:
    """CPU time per record within the window, in microseconds."""
    inside = [u for u in usage if window.start <= u.at <= window.end]
    if len(inside) < 2:
        return {}
    share = (inside[-1].at - inside[0].at) * window.rate
    python = (inside[-1].python_cpu - inside[0].python_cpu) / share * 1e6
    java = (inside[-1].java_cpu - inside[0].java_cpu) / share * 1e6
    return {"python_cpu_us": python, "java_cpu_us": java, "cpu_us": python + java}


def soak_costs(samples: list[tuple[float, int]]) -> dict[str, float]:
    """Microseconds per record between the marks of the soak, and the last over the first."""
    costs: dict[str, float] = {}
    for low, high in pairwise(SOAK_MARKS):
        inside = [sample for sample in samples if low * 1e6 <= sample[1] <= high * 1e6]
        if len(inside) >= 2 and inside[-1][1] > inside[0][1]:
            seconds = inside[-1][0] - inside[0][0]
            costs[f"us_from_{low}_to_{high}m"] = seconds / (inside[-1][1] - inside[0][1]) * 1e6
    # A soak that did not go all the way says nothing about what it would have ended with.
    if len(costs) == len(SOAK_MARKS) - 1 and samples[-1][1] >= SOAK_MARKS[-1] * 1e6 * TAIL:
        first, *_, last = costs.values()
        costs["last_over_first_cost"] = last / first
    return costs
