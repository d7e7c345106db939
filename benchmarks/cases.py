"""What is measured: the workloads, and a case as one workload at one number of keys."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Workload(StrEnum):
    """The workloads; their values are the names on the command line and in the JSON."""

    SUM = "sum"
    FUNCTION = "function"
    MAP = "map"
    TUMBLING = "tumbling"
    SLIDING = "sliding"
    SESSION = "session"
    WINDOW_FUNCTION = "window-function"
    INTERVAL_JOIN = "interval-join"
    KAFKA = "kafka"
    LATENCY = "latency"
    COMMITTED = "committed"
    PACE = "pace"
    GRAPHS = "graphs"
    FLOOR = "floor"
    INCREMENTAL = "incremental"
    RECOVERY = "recovery"
    RESTORE = "restore"
    CHECKPOINTS = "checkpoints"
    SLOTS = "slots"
    SOAK = "soak"

    @property
    def heading(self) -> str:
        return HEADINGS[self]

    @property
    def throughput(self) -> bool:
        return self not in (
            Workload.LATENCY,
            Workload.COMMITTED,
            Workload.PACE,
            Workload.GRAPHS,
            Workload.FLOOR,
            Workload.INCREMENTAL,
            Workload.RECOVERY,
            Workload.RESTORE,
            Workload.CHECKPOINTS,
        )


HEADINGS = {
    Workload.SUM: "(a) keyed running sum, the engine's own aggregation",
    Workload.FUNCTION: "(b) keyed running sum, a Python function per record with state",
    Workload.MAP: "(c) map only, a Python function per record",
    Workload.TUMBLING: "(h) sums in windows of 10 s, the engine's own aggregation",
    Workload.SLIDING: "(i) sums in windows of 10 s that slide by 100 ms",
    Workload.SESSION: "(j) sums in sessions with a gap of 5 s",
    Workload.WINDOW_FUNCTION: "(k) windows of 10 s, a Python AggregateFunction",
    Workload.INTERVAL_JOIN: "(l) interval join of two streams, records of both",
    Workload.KAFKA: "a Kafka topic of JSON messages to a keyed running sum",
    Workload.LATENCY: "(e) event to sink at a fixed rate, keyed running sum",
    Workload.COMMITTED: "event to a consumer of committed messages, at three checkpoint intervals",
    Workload.PACE: "CPU time of an idle job, and of one with little to do",
    Workload.GRAPHS: "from execute() to the first results of large graphs",
    Workload.FLOOR: "(d) floor of a warm two-stage step",
    Workload.INCREMENTAL: "what a RocksDB checkpoint writes when 1 % of the keys have changed",
    Workload.RECOVERY: "from a failure to the first new result, (a) with its state in memory",
    Workload.RESTORE: "restoring a savepoint of another parallelism, and of the same",
    Workload.CHECKPOINTS: "cost per record of (a) as completed checkpoints add up",
    Workload.SLOTS: "cost per record of (a) by number of slots",
    Workload.SOAK: "(g) soak of (a): cost per record as it goes on",
}

WINDOWS = (
    Workload.TUMBLING,
    Workload.SLIDING,
    Workload.SESSION,
    Workload.WINDOW_FUNCTION,
    Workload.INTERVAL_JOIN,
)
DEFAULT_WORKLOADS = (
    Workload.SUM,
    Workload.FUNCTION,
    Workload.MAP,
    *WINDOWS,
    Workload.FLOOR,
    Workload.LATENCY,
    Workload.PACE,
    Workload.GRAPHS,
    Workload.INCREMENTAL,
    Workload.RECOVERY,
    Workload.RESTORE,
)
DEFAULT_KEYS = (1_000, 1_000_000)
FEW, MANY = DEFAULT_KEYS
WINDOW_KEYS = (1_000, 100_000)
SLOT_COUNTS = (1, 2, 4, 8)


@dataclass(frozen=True)
class Case:
    """A workload at a number of keys (and, for the workload `slots`, a number of slots)."""

    workload: Workload
    keys: int
    slots: int | None = None

    @property
    def name(self) -> str:
        slots = f", {self.slots} slots" if self.slots is not None else ""
        return f"{self.workload.value} {self.keys:,} keys{slots}"


def cases_of(workloads: list[Workload], keys: list[int]) -> list[Case]:
    """Every workload at every number of keys that makes sense for it, in the order of the enum."""
    cases: list[Case] = []
    for workload in Workload:
        if workload not in workloads:
            continue
        if workload in (Workload.SUM, Workload.FUNCTION):
            cases += [Case(workload, number) for number in keys]
        elif workload in (Workload.INCREMENTAL, Workload.RECOVERY, Workload.RESTORE):
            cases.append(Case(workload, MANY))
        elif workload in (Workload.TUMBLING, Workload.SLIDING, Workload.SESSION):
            cases += [Case(workload, number) for number in WINDOW_KEYS]
        elif workload is Workload.SLOTS:
            cases += [Case(workload, FEW, slots) for slots in SLOT_COUNTS]
        else:
            cases.append(Case(workload, FEW))
    return cases
