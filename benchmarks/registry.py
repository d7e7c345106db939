"""The peers: which program measures what, in which environment, with which options.

`rates` are records per second once reached on a quiet machine with two cores. They only set sizes:
how many records a bounded run gets and with which batch a search for the right batch begins.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from benchmarks.cases import FEW, MANY, WINDOWS, Case, Workload
from benchmarks.environments import TIDEGATE


@dataclass(frozen=True)
class Peer:
    """Something a user could take, as the harness knows it."""

    name: str
    title: str
    environment: str
    modules: Mapping[Workload, str]
    rates: Mapping[tuple[Workload, int], float]
    options: Mapping[str, Any] = field(default_factory=dict)

    def measures(self, case: Case) -> bool:
        return case.workload in self.modules

    def rate(self, case: Case) -> float:
        """The rate a case is planned with; a number of keys in between counts as the larger."""
        known = FEW if case.keys <= FEW else MANY
        workload = case.workload
        if workload in (Workload.SLOTS, Workload.SOAK):
            workload = Workload.SUM
        return self.rates.get((workload, known)) or self.rates.get((workload, FEW)) or 10_000.0


TIDEGATE_RATES = {
    (Workload.SUM, FEW): 8e6,
    (Workload.SUM, MANY): 5e6,
    (Workload.FUNCTION, FEW): 1e6,
    (Workload.FUNCTION, MANY): 0.8e6,
    (Workload.MAP, FEW): 1e6,
    (Workload.TUMBLING, FEW): 6e6,
    (Workload.TUMBLING, MANY): 4e6,
    (Workload.SLIDING, FEW): 4e6,
    (Workload.SLIDING, MANY): 1.5e6,
    (Workload.SESSION, FEW): 4e6,
    (Workload.SESSION, MANY): 3e6,
    (Workload.WINDOW_FUNCTION, FEW): 0.8e6,
    (Workload.INTERVAL_JOIN, FEW): 2e6,
    (Workload.KAFKA, FEW): 0.3e6,
}

PEERS: tuple[Peer, ...] = (
    Peer(
        name="tidegate",
        title="Tidegate",
        environment=TIDEGATE,
        modules={
            **dict.fromkeys(Workload, "benchmarks.peers.tidegate_peer"),
            **dict.fromkeys(WINDOWS, "benchmarks.peers.tidegate_windows"),
            Workload.KAFKA: "benchmarks.peers.tidegate_kafka",
            Workload.COMMITTED: "benchmarks.peers.tidegate_committed",
            Workload.PACE: "benchmarks.peers.tidegate_pace",
            Workload.GRAPHS: "benchmarks.peers.tidegate_graphs",
            Workload.INCREMENTAL: "benchmarks.peers.tidegate_incremental",
            Workload.RECOVERY: "benchmarks.peers.tidegate_recovery",
            Workload.RESTORE: "benchmarks.peers.tidegate_restore",
            Workload.CHECKPOINTS: "benchmarks.peers.tidegate_checkpoints",
        },
        rates=TIDEGATE_RATES,
        options={"checkpoints": True},
    ),
    Peer(
        name="tidegate-2-ms",
        title="Tidegate, steps 2 ms apart",
        environment=TIDEGATE,
        modules={Workload.LATENCY: "benchmarks.peers.tidegate_peer"},
        rates={},
        options={"checkpoints": True, "settings": {"tidegate.step.latency-target": "2 ms"}},
    ),
    Peer(
        name="tidegate-no-checkpoints",
        title="Tidegate without checkpoints",
        environment=TIDEGATE,
        modules={
            Workload.SUM: "benchmarks.peers.tidegate_peer",
            Workload.FUNCTION: "benchmarks.peers.tidegate_peer",
        },
        rates=TIDEGATE_RATES,
        options={"checkpoints": False},
    ),
    Peer(
        name="flink-sql",
        title="Flink SQL, a result per record",
        environment="flink",
        modules={
            Workload.SUM: "benchmarks.peers.flink_sql",
            Workload.TUMBLING: "benchmarks.peers.flink_windows",
            Workload.SLIDING: "benchmarks.peers.flink_windows",
            Workload.SESSION: "benchmarks.peers.flink_windows",
            Workload.INTERVAL_JOIN: "benchmarks.peers.flink_windows",
            Workload.LATENCY: "benchmarks.peers.flink_latency",
        },
        rates={
            (Workload.SUM, FEW): 2.4e6,
            (Workload.SUM, MANY): 0.6e6,
            (Workload.TUMBLING, FEW): 1.5e6,
            (Workload.TUMBLING, MANY): 1e6,
            (Workload.SLIDING, FEW): 0.8e6,
            (Workload.SLIDING, MANY): 0.2e6,
            (Workload.SESSION, FEW): 0.4e6,
            (Workload.SESSION, MANY): 0.2e6,
            (Workload.INTERVAL_JOIN, FEW): 0.3e6,
        },
        options={"state_backend": "hashmap", "language": "sql"},
    ),
    Peer(
        name="spark-native",
        title="Spark native aggregation (one result per key and batch)",
        environment="spark",
        modules={
            Workload.SUM: "benchmarks.peers.spark_native",
            Workload.TUMBLING: "benchmarks.peers.spark_windows",
            Workload.SLIDING: "benchmarks.peers.spark_windows",
            Workload.LATENCY: "benchmarks.peers.spark_latency",
        },
        rates={
            (Workload.SUM, FEW): 6e6,
            (Workload.SUM, MANY): 0.1e6,
            (Workload.TUMBLING, FEW): 3e6,
            (Workload.TUMBLING, MANY): 0.5e6,
            (Workload.SLIDING, FEW): 0.05e6,
            (Workload.SLIDING, MANY): 0.02e6,
        },
    ),
    Peer(
        name="spark-real-time",
        title="Spark's real-time mode, native aggregation",
        environment="spark",
        modules={Workload.LATENCY: "benchmarks.peers.spark_realtime"},
        rates={},
    ),
    Peer(
        name="polars",
        title="Polars, whole table in memory (ceiling)",
        environment="polars",
        modules={Workload.SUM: "benchmarks.peers.polars_table"},
        rates={(Workload.SUM, FEW): 20e6, (Workload.SUM, MANY): 6e6},
        options={"rows": 20_000_000},
    ),
    Peer(
        name="limit",
        title="A bare loop with a dict, a process per core (limit)",
        environment=TIDEGATE,
        modules={Workload.FUNCTION: "benchmarks.peers.bare_loop"},
        rates={(Workload.FUNCTION, FEW): 5e6, (Workload.FUNCTION, MANY): 2e6},
    ),
    Peer(
        name="bytewax",
        title="Bytewax, batches of 1,000 (its connectors' default)",
        environment="bytewax",
        modules={
            Workload.WINDOW_FUNCTION: "benchmarks.peers.bytewax_peer",
            Workload.FUNCTION: "benchmarks.peers.bytewax_peer",
            Workload.MAP: "benchmarks.peers.bytewax_peer",
        },
        rates={(Workload.FUNCTION, FEW): 0.43e6, (Workload.MAP, FEW): 5e6},
        options={"batch": 1_000},
    ),
    Peer(
        name="bytewax-large-batches",
        title="Bytewax, batches of 100,000",
        environment="bytewax",
        modules={
            Workload.WINDOW_FUNCTION: "benchmarks.peers.bytewax_peer",
            Workload.FUNCTION: "benchmarks.peers.bytewax_peer",
            Workload.MAP: "benchmarks.peers.bytewax_peer",
        },
        rates={(Workload.FUNCTION, FEW): 1e6, (Workload.MAP, FEW): 5e6},
        options={"batch": 100_000},
    ),
    Peer(
        name="spark-tws-rows",
        title="Spark transformWithState (rows)",
        environment="spark",
        modules={Workload.FUNCTION: "benchmarks.peers.spark_tws"},
        rates={(Workload.FUNCTION, FEW): 60_000, (Workload.FUNCTION, MANY): 2_000},
        options={"way": "rows"},
    ),
    Peer(
        name="spark-tws-pandas",
        title="Spark transformWithStateInPandas",
        environment="spark",
        modules={Workload.FUNCTION: "benchmarks.peers.spark_tws"},
        rates={(Workload.FUNCTION, FEW): 20_000, (Workload.FUNCTION, MANY): 1_000},
        options={"way": "pandas"},
    ),
    Peer(
        name="pyflink",
        title="PyFlink DataStream, tuned",
        environment="flink",
        modules={
            Workload.FUNCTION: "benchmarks.peers.flink_datastream",
            Workload.MAP: "benchmarks.peers.flink_datastream",
            Workload.WINDOW_FUNCTION: "benchmarks.peers.flink_datastream",
            Workload.LATENCY: "benchmarks.peers.flink_latency",
        },
        rates={
            (Workload.WINDOW_FUNCTION, FEW): 20_000,
            (Workload.FUNCTION, FEW): 20_000,
            (Workload.FUNCTION, MANY): 10_000,
            (Workload.MAP, FEW): 50_000,
        },
        options={"execution_mode": "process", "bundle_size": 100_000, "language": "python"},
    ),
    Peer(
        name="spark-udf",
        title="Spark Python UDF over Arrow",
        environment="spark",
        modules={Workload.MAP: "benchmarks.peers.spark_map"},
        rates={(Workload.MAP, FEW): 1e6},
    ),
    Peer(
        name="spark-two-stages",
        title="Spark alone: two empty Python stages",
        environment="spark",
        modules={Workload.FLOOR: "benchmarks.peers.spark_floor"},
        rates={},
    ),
)
BY_NAME = {peer.name: peer for peer in PEERS}
