"""Cases drawn from a seed: a program, its settings, and its faults."""

from __future__ import annotations

import random
from dataclasses import dataclass

from tidegate.core.fault_points import FaultPoint, Victim

LOCAL, CLUSTER = "local", "cluster"
BLOCK = 25
"""How many cases share a kind of Spark."""
PROGRAMS = ("counts", "windows", "joins", "pipelines", "files", "kafka_kafka", "kafka_postgres")
_AT_LEAST_ONCE = {"counts", "pipelines", "files"}
"""Programs whose results show that nothing is lost, even if some are repeated."""
AT_POINT = "at a point of the protocol"
SLOT, DRIVER, EXECUTOR, SPARK = "slot", "driver", "executor", "Spark with its driver"
PUMP = "pump"
BROKER, DATABASE, DISK = "broker", "database", "full disk"
PAUSE, RIVAL = "slot stopped beyond its lease", "driver stopped, job taken over"
RESCALE, SAVEPOINT, RESTART = "rescale", "savepoint", "restart from savepoint"
ACTIONS = (RESCALE, SAVEPOINT, RESTART)
"""User requests, which are not kills."""


@dataclass(frozen=True, slots=True)
class Fault:
    kind: str
    wait: bool
    """Whether the job first recovers and completes a checkpoint."""
    delay: float
    """Seconds after that."""
    chance: float
    """Chooses the slot, the new parallelism, ..."""
    order: tuple[FaultPoint, Victim, int] | None = None
    """The point of the protocol, the victim, and how often it passes the point first."""

    @property
    def name(self) -> str:
        if self.order is None:
            return self.kind
        point, victim, _ = self.order
        return f"{victim.value} {point.value}"

    @property
    def is_kill(self) -> bool:
        return self.kind not in ACTIONS


@dataclass(frozen=True, slots=True)
class Case:
    seed: int
    number: int
    stage: str
    program: str
    backend: str
    incremental: bool
    exactly: bool
    unaligned: bool
    exchange: str
    failover: str
    parallelism: int
    interval_ms: int
    retained: int
    faults: tuple[Fault, ...]

    @property
    def name(self) -> str:
        return f"c{self.seed}x{self.number}"

    @property
    def settings(self) -> dict[str, str | bool | int]:
        """Its entry in the ledger."""
        names = ("stage", "backend", "incremental", "exactly", "unaligned", "exchange", "failover")
        return {name: getattr(self, name) for name in (*names, "parallelism", "interval_ms")}


def draw(seed: int, number: int, pumped: bool = False) -> Case:
    """The case of this number. With `pumped`, it has pumps, and every other block a cluster."""
    block = number // BLOCK
    stage = random.Random(f"{seed}/stage/{block}").choices([LOCAL, CLUSTER], [7, 1])[0]
    if pumped:
        stage = LOCAL if block % 2 else CLUSTER
    rnd = random.Random(f"{seed}/{number}")
    program = rnd.choice(PROGRAMS)
    exchange = "pipelined" if pumped else rnd.choice(["pipelined", "jobs"])
    return Case(
        seed,
        number,
        stage,
        program,
        backend=rnd.choice(["hashmap", "rocksdb"]),
        incremental=rnd.random() < 0.5,
        exactly=program not in _AT_LEAST_ONCE or rnd.random() < 0.7,
        unaligned=rnd.random() < 0.4,
        exchange=exchange,
        failover=rnd.choice(["region", "full"]),
        parallelism=rnd.choice([2, 2, 3] if pumped else [1, 2, 2, 3]),
        interval_ms=rnd.choice([50, 150, 400]),
        retained=rnd.choice([1, 1, 2]),
        faults=tuple(_fault(rnd, program, stage, exchange) for _ in range(rnd.randrange(6, 13))),
    )


def _fault(rnd: random.Random, program: str, stage: str, exchange: str) -> Fault:
    weights = {SLOT: 8, AT_POINT: 10, DRIVER: 3, PAUSE: 1, RIVAL: 1, DISK: 2, SPARK: 0.03}
    weights |= {RESCALE: 1.5, SAVEPOINT: 1, RESTART: 1}
    if stage == CLUSTER:
        weights |= {EXECUTOR: 6, SPARK: 0}
    if exchange == "pipelined":
        weights[PUMP] = 6
    if program.startswith("kafka"):
        weights[BROKER] = 0.6
    if program.endswith("postgres"):
        weights[DATABASE] = 4
    kind = rnd.choices(list(weights), list(weights.values()))[0]
    wait = rnd.random() < 0.75
    delay = rnd.choice([0.0, rnd.uniform(0, 0.1), rnd.uniform(0, 0.5)])
    order = None
    if kind == AT_POINT:
        order = (rnd.choice(list(FaultPoint)), rnd.choice(list(Victim)), rnd.randrange(3))
    return Fault(kind, wait, delay, rnd.random(), order)
