"""What Tidegate has set itself to reach, as data: the only place where the goals stand.

They are ratios within one run on one machine, or limits on a measure of Tidegate's own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from benchmarks.cases import FEW, MANY, WINDOW_KEYS, Case, Workload


class Outcome(StrEnum):
    REACHED = "reached"
    MISSED = "missed"
    UNKNOWN = "not measured"


@dataclass(frozen=True)
class RatioGoal:
    """Tidegate's records per second over those of the fastest of some peers."""

    case: Case
    peers: tuple[str, ...]
    at_least: float

    def judge(self, ratio: float | None) -> Outcome:
        if ratio is None:
            return Outcome.UNKNOWN
        return Outcome.REACHED if ratio >= self.at_least else Outcome.MISSED

    @property
    def text(self) -> str:
        return f"{self.case.name}: at least {self.at_least:.3g} x {' / '.join(self.peers)}"


@dataclass(frozen=True)
class LimitGoal:
    """An upper bound on one of Tidegate's own measures, or on its ratio to that of a peer."""

    case: Case
    measure: str
    below: float
    unit: str
    than: str | None = None
    """The peer that it is compared with."""
    peer: str = "tidegate"

    def judge(self, value: float | None) -> Outcome:
        if value is None:
            return Outcome.UNKNOWN
        return Outcome.REACHED if value < self.below else Outcome.MISSED

    @property
    def text(self) -> str:
        limit = f"{self.below:g} {self.unit}".rstrip()
        if self.than is not None:
            limit += f" that of {self.than}"
        whose = "" if self.peer == "tidegate" else f" of {self.peer}"
        return f"{self.case.name}: {self.measure}{whose} below {limit}"


Goal = RatioGoal | LimitGoal

BYTEWAX = ("bytewax", "bytewax-large-batches")
PROMPT = "tidegate-2-ms"
SPARK_PYTHON = ("spark-tws-rows", "spark-tws-pandas")

RATIO_GOALS: Sequence[RatioGoal] = (
    RatioGoal(Case(Workload.SUM, FEW), ("flink-sql",), 2),
    RatioGoal(Case(Workload.SUM, FEW), ("spark-native",), 1),
    RatioGoal(Case(Workload.SUM, FEW), ("polars",), 0.75),
    RatioGoal(Case(Workload.SUM, MANY), ("flink-sql",), 3),
    RatioGoal(Case(Workload.SUM, MANY), ("spark-native",), 10),
    RatioGoal(Case(Workload.SUM, MANY), ("polars",), 1),
    RatioGoal(Case(Workload.FUNCTION, FEW), ("bytewax",), 2),
    RatioGoal(Case(Workload.FUNCTION, FEW), SPARK_PYTHON, 8),
    RatioGoal(Case(Workload.FUNCTION, MANY), BYTEWAX, 15),
    RatioGoal(Case(Workload.FUNCTION, FEW), ("limit",), 0.6),
    RatioGoal(Case(Workload.FUNCTION, MANY), ("limit",), 0.5),
    RatioGoal(Case(Workload.SUM, MANY), ("tidegate-no-checkpoints",), 0.9),
    RatioGoal(Case(Workload.FUNCTION, MANY), ("tidegate-no-checkpoints",), 0.9),
)

WINDOW_GOALS: Sequence[RatioGoal] = tuple(
    RatioGoal(Case(workload, keys), (peer,), 3)
    for workload, peers in (
        (Workload.TUMBLING, ("flink-sql", "spark-native")),
        (Workload.SLIDING, ("flink-sql", "spark-native")),
        (Workload.SESSION, ("flink-sql",)),
    )
    for keys in WINDOW_KEYS
    for peer in peers
)
RATIO_GOALS = (
    *RATIO_GOALS,
    *WINDOW_GOALS,
    RatioGoal(Case(Workload.WINDOW_FUNCTION, FEW), ("pyflink",), 10),
    RatioGoal(Case(Workload.WINDOW_FUNCTION, FEW), BYTEWAX, 2),
    RatioGoal(Case(Workload.INTERVAL_JOIN, FEW), ("flink-sql",), 2),
)

LIMIT_GOALS: Sequence[LimitGoal] = (
    LimitGoal(Case(Workload.SUM, MANY), "python_peak_mb", 700, "MB"),
    LimitGoal(Case(Workload.FLOOR, FEW), "step_p50_ms", 100, "ms"),
    *(
        LimitGoal(Case(Workload.SLIDING, keys), "tumbling_over_sliding", 2, "x")
        for keys in WINDOW_KEYS
    ),
    LimitGoal(Case(Workload.KAFKA, FEW), "us_per_record", 1e6 / 150_000, "us"),
    LimitGoal(Case(Workload.LATENCY, FEW), "latency_p50_ms", 5, "ms", peer=PROMPT),
    LimitGoal(Case(Workload.LATENCY, FEW), "latency_p99_ms", 20, "ms", peer=PROMPT),
    LimitGoal(Case(Workload.LATENCY, FEW), "latency_p50_ms", 1 / 20, "x", "spark-native", PROMPT),
    LimitGoal(Case(Workload.LATENCY, FEW), "latency_p50_ms", 1 / 5, "x", "pyflink", PROMPT),
    LimitGoal(Case(Workload.INCREMENTAL, MANY), "written_over_full", 0.1, "x"),
    LimitGoal(Case(Workload.PACE, FEW), "idle_percent", 2, "% of a core"),
    LimitGoal(Case(Workload.PACE, FEW), "idle_polled_percent", 2, "% of a core"),
    LimitGoal(Case(Workload.PACE, FEW), "transport_percent", 20, "% of a core"),
    LimitGoal(Case(Workload.GRAPHS, FEW), "operators_s", 10, "s"),
    LimitGoal(Case(Workload.GRAPHS, FEW), "pipelines_s", 10, "s"),
    LimitGoal(Case(Workload.RECOVERY, MANY), "exception_s", 0.3, "s"),
    LimitGoal(Case(Workload.RECOVERY, MANY), "kill_s", 1.5, "s"),
    LimitGoal(Case(Workload.RECOVERY, MANY), "executor_s", 4, "s"),
    LimitGoal(Case(Workload.RECOVERY, MANY), "driver_s", 10, "s"),
    LimitGoal(Case(Workload.RESTORE, MANY), "other_over_same", 1.5, "x"),
    LimitGoal(Case(Workload.CHECKPOINTS, FEW), "last_over_first_cost", 1.15, "x"),
    LimitGoal(Case(Workload.CHECKPOINTS, FEW), "driver_growth_mb", 20, "MB"),
    LimitGoal(Case(Workload.SOAK, FEW), "last_over_first_cost", 1.15, "x"),
    LimitGoal(Case(Workload.SLOTS, FEW), "measured_over_model_cost", 1.15, "x"),
)
