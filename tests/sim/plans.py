"""What is decided before the first event: the program, its settings, and its faults."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from tests.sim.programs import LISTING, Program
from tests.sim.tides import KINDS as TIMES
from tests.sim.tides import fitting
from tidegate.core.fault_points import FaultPoint, Victim

CHECKPOINTS = "/simulated/checkpoints"
SAVEPOINTS = "/simulated/savepoints"
HEARTBEAT_SECONDS = 1.0
LEASE_SECONDS = 5.0
KINDS = {
    "kill a slot": 3,
    "put a slot to sleep": 3,
    "pause a slot": 2,
    "cut a line": 2,
    "reset a line": 2,
    "start a slot twice": 1,
    "give a slot up": 1,
    "kill the driver": 2,
    "put the driver to sleep": 1,
    "start a rival": 2,
    "storage fails": 3,
    "storage is slow": 2,
    "the bank fails": 2,
    "a server restarts": 1,
    "a transaction times out": 1,
    "a byte is flipped": 1,
    "steps break": 2,
    "kill a pump": 2,
    "start a pump twice": 1,
    "pumps lag": 2,
    "no room for pumps": 1,
    "user code fails": 3,
    "a clock jumps": 1,
    "checkpoint": 2,
    "savepoint": 2,
    "stop": 2,
    "drain": 1,
    "rescale": 3,
    "cancel": 1,
}
"""What can befall a job, or be asked for by its user, and how often it is drawn."""
OF_MACHINES = ("lose an executor", "a machine crashes")
"""Some plans have one of these in addition; the others are those of earlier versions."""
ALL_KINDS = (*KINDS, *OF_MACHINES)
BETWEEN_LEVELS = "the next level starts"
RARE = ("RESTARTING publishing", "CANCELLING", "CANCELLING publishing")
"""States of the driver that are moments, too."""
_OF_PUMPS = ("kill a pump", "start a pump twice", "pumps lag", "no room for pumps")
POINTS = tuple(f"{victim.value} {point.value}" for victim in Victim for point in FaultPoint)
MOMENTS = (
    *POINTS,
    "a process registers",
    "a deployment arrives",
    "a step starts",
    "pumps start",
    "a pump is let in",
    "cargo travels",
    "an input ends",
    "a barrier starts",
    "an abort arrives",
    "a completion arrives",
    "a transaction begins",
    "a transaction is prepared",
    "a transaction is committed",
    "a leftover is aborted",
    "state is written",
    "metadata is created",
    "something is deleted",
    "a directory is claimed",
    "the job is canceled",
)
"""Moments at which a fault can strike, instead of at a time."""


@dataclass(frozen=True)
class Fault:
    """A fault or a user request."""

    at: float
    kind: str
    which: int = 0
    amount: float = 0.0
    moment: str = ""
    """From its time on, it waits for this moment, then strikes."""

    def __str__(self) -> str:
        when = f", when {self.moment}" if self.moment else ""
        return f"{self.at:.2f} s{when}: {self.kind} ({self.which}, {self.amount:.2f})"


@dataclass(frozen=True)
class Wish:
    """Properties of a plan: a bug is searched for where it can do harm."""

    kinds: tuple[str, ...] = tuple(KINDS)
    """Of `KINDS`; "a kind @ a moment" strikes at that moment, and waits for it early."""
    moments: tuple[str, ...] = MOMENTS
    traits: Mapping[str, Any] = field(default_factory=dict)
    """Used instead of drawn values; by the names of `Plan.draw`."""
    aims: float | None = None
    """How often faults strike at a moment rather than at a time."""
    always: tuple[str, ...] = ()
    """What every plan has in addition, like `kinds`."""


ANY = Wish()
THEMES = (
    Wish(("storage is slow", *(f"{kind} @ metadata is created" for kind in KINDS))),
    Wish(("storage is slow", *(f"{kind} @ state is written" for kind in KINDS))),
    Wish(("cancel", *(f"{kind} @ the job is canceled" for kind in KINDS))),
    Wish(
        ("the bank fails @ a transaction begins", "kill a slot @ a process registers", *KINDS),
        traits={"pipelines": 2, "failover": "region"},
    ),
)
"""What some plans are about, because chance alone leads there rarely."""
CORNERS = (
    Wish(tuple(f"{kind} @ the job is canceled" for kind in KINDS), always=("cancel",)),
    Wish(
        tuple(f"{kind} @ the job is canceled" for kind in KINDS),
        always=("storage is slow @ metadata is created", "cancel @ metadata is created"),
    ),
    Wish(
        tuple(f"{kind} @ a process registers" for kind in KINDS),
        always=("storage is slow @ metadata is created", "kill a slot @ metadata is created"),
    ),
)
"""States that hardly last: what is being published when the job is canceled or restarts."""
_AT_ONCE = {"concurrent": 3, "unaligned": False, "interval": 300, "inline": "0 b"}
_SLOWLY = ("storage is slow @ metadata is created", "storage is slow @ state is written")
RARITIES = (
    Wish(
        tuple(f"{kind} @ {state}" for kind in ALL_KINDS for state in RARE[1:]),
        always=(*_SLOWLY, "cancel @ metadata is created"),
        traits={"faults": 6, "retained": 1},
    ),
    Wish(
        tuple(f"{kind} @ {RARE[0]}" for kind in ALL_KINDS),
        always=(*_SLOWLY, "kill a slot @ metadata is created"),
        traits={"faults": 6, "interval": 300},
    ),
    Wish(
        ("storage is slow", *ALL_KINDS),
        always=(*_SLOWLY, "storage is slow"),
        traits={**_AT_ONCE, "tolerable": 0, "timeout": 1},
    ),
    Wish(
        (
            "storage fails @ state is written",
            "storage fails @ metadata is created",
            "kill a slot @ metadata is created",
            "user code fails @ metadata is created",
            "savepoint @ metadata is created",
            "cancel @ metadata is created",
            "cancel @ a completion arrives",
            "checkpoint",
        ),
        always=_SLOWLY,
        traits={**_AT_ONCE, "pipelines": 2, "failover": "region", "faults": 4},
    ),
    Wish(
        (
            f"user code fails @ {LISTING}",
            f"cancel @ {LISTING}",
            "user code fails @ metadata is created",
            "kill a slot @ metadata is created",
            "cancel @ metadata is created",
        ),
        always=(*[f"user code fails @ {LISTING}"] * 3, "storage is slow @ metadata is created"),
        traits={
            **_AT_ONCE,
            "discovers": True,
            "time": "",
            "pipelines": 2,
            "failover": "region",
            "delay": 500,
        },
    ),
    Wish(
        (
            "put a slot to sleep",
            "user code fails @ metadata is created",
            "kill a slot @ metadata is created",
            "cancel @ metadata is created",
        ),
        moments=("a deployment arrives",),
        always=("put a slot to sleep", *_SLOWLY),
        traits={**_AT_ONCE, "sink": "kafka", "timeout": 30, "faults": 4},
    ),
    Wish(
        (
            "start a rival @ metadata is created",
            "kill the driver @ a process registers",
            "kill the driver @ a deployment arrives",
            "put the driver to sleep @ metadata is created",
        ),
        always=_SLOWLY,
        traits={**_AT_ONCE, "faults": 6},
    ),
)
"""Where chance leads almost never."""
RAREST = (
    Wish(
        ("start a slot twice @ metadata is created",),
        always=(*_SLOWLY, "start a slot twice @ metadata is created"),
        traits={**_AT_ONCE, "faults": 2},
    ),
    Wish(
        ("cancel @ a completion arrives", "cancel @ metadata is created"),
        always=(*_SLOWLY, "storage is slow", "cancel @ a completion arrives"),
        traits={**_AT_ONCE, "faults": 1, "pipelines": 2},
    ),
    Wish(
        tuple(f"{kind} @ {state}" for kind in ("a clock jumps", "pumps lag") for state in RARE[1:]),
        always=(*_SLOWLY, "cancel @ metadata is created"),
        traits={"faults": 3, "retained": 1, "interval": 300},
    ),
    Wish(
        ("storage is slow", f"kill the driver @ {RARE[2]}"),
        always=(
            *_SLOWLY,
            "cancel @ metadata is created",
            f"start a rival @ {RARE[2]}",
            f"kill the driver @ {RARE[2]}",
        ),
        traits={"faults": 1, "retained": 1, "interval": 300},
    ),
    Wish(
        ("put a slot to sleep",),
        moments=("a deployment arrives",),
        aims=1.0,
        always=(*_SLOWLY, *_SLOWLY, "give a slot up @ a deployment fails"),
        traits={**_AT_ONCE, "timeout": 30, "rate": 2.0, "faults": 4, "sink": "kafka"},
    ),
)
"""Each leads to a few pairs of state and event that hardly any other schedule reaches."""
EXCHANGES = ("jobs", "pipelined", "either")
"""Steps are Spark jobs, go over an endless one, or over that until it breaks too often."""


@dataclass(frozen=True)
class Plan:
    """Everything that is decided before the first event."""

    seed: object
    program: Program
    width: int
    settings: dict[str, Any]
    faults: tuple[Fault, ...]
    twins: float
    """How often Spark runs a task twice, or loses its output."""
    packet_bytes: int
    mode: str
    exchange: str = "jobs"
    """Of `EXCHANGES`."""

    @classmethod
    def draw(cls, seed: object, wish: Wish = ANY) -> Plan:
        rnd = random.Random(f"{seed}/plan")
        is_any = wish == ANY
        if is_any and (rarest := random.Random(f"{seed}/rarest")).random() < 0.05:
            wish = rarest.choice(RAREST)
        elif is_any and (rarities := random.Random(f"{seed}/rarities")).random() < 0.2:
            wish = rarities.choice(RARITIES)
        elif is_any and (drawn := rnd.random()) < 0.4:
            wish = rnd.choice(THEMES if drawn < 0.3 else CORNERS)

        def choose(trait: str, *options: Any) -> Any:
            drawn = rnd.choice(options)
            return wish.traits.get(trait, drawn)

        length = rnd.choice([5, 10, 15])
        mode = choose("mode", *["EXACTLY_ONCE"] * 9, "AT_LEAST_ONCE")
        unaligned = choose("unaligned", True, False, False) and mode == "EXACTLY_ONCE"
        time = choose("time", "", "", *TIMES) if mode == "EXACTLY_ONCE" else ""
        streams = [
            [rnd.randint(1, length) for _ in range(rnd.randint(1, 4))]
            for _ in range(choose("pipelines", 1, 1, 2))
        ]
        if time:
            streams[0] = [fitting(each) for each in streams[0]]
        program = Program(
            streams=tuple(map(tuple, streams)),
            sink=choose("sink", "function", "committer", "files", "kafka", "postgres"),
            rate=choose("rate", 2.0, 4.0, 10.0),
            keys=rnd.choice([1, 3, 10]),
            discovers=choose("discovers", True, False, False) and not time,
            holds=choose("holds", True, False, False) and not time,
            time=time,
            typed=choose("typed", True, False),
            idles=choose("idles", True, False),
        )
        milliseconds = choose("interval", 300, 700, 2000, 2000, 600_000)
        settings = {
            "execution.checkpointing.interval": f"{milliseconds} ms",
            "execution.checkpointing.mode": mode,
            "execution.checkpointing.timeout": f"{choose('timeout', 1, 5, 30)} s",
            "execution.checkpointing.min-pause": f"{rnd.choice([0, 0, 300])} ms",
            "execution.checkpointing.max-concurrent-checkpoints": (
                1 if unaligned else choose("concurrent", 1, 1, 3)
            ),
            "execution.checkpointing.tolerable-failed-checkpoints": choose(
                "tolerable", 0, 3, 10**6
            ),
            "execution.checkpointing.num-retained": choose("retained", 1, 1, 3),
            "execution.checkpointing.externalized-checkpoint-retention": "RETAIN_ON_CANCELLATION",
            "execution.checkpointing.unaligned.enabled": unaligned,
            "execution.checkpointing.dir": CHECKPOINTS,
            "execution.checkpointing.data-inline-threshold": choose("inline", "0 b", "20 kb"),
            **_restarts(choose("delay", 1, 500)),
            "jobmanager.execution.failover-strategy": choose("failover", "full", "region"),
            "tidegate.step.max-records": rnd.choice([1, 3, 10]),
            "tidegate.step.attempts": 3,
            "heartbeat.interval": f"{HEARTBEAT_SECONDS} s",
            "heartbeat.timeout": f"{LEASE_SECONDS} s",
            "task.cancellation.timeout": "20 s",
        }
        exchange = choose("exchange", *EXCHANGES)
        if exchange == "jobs":
            wish = replace(wish, kinds=tuple(k for k in wish.kinds if not k.startswith(_OF_PUMPS)))
        count = choose("faults", 1, 2, 3, 4, 6)
        horizon = length / program.rate + 6
        faults = [_draw_fault(rnd, horizon, wish) for _ in range(count)]
        faults += [_draw_fault(rnd, horizon, replace(wish, kinds=(k,))) for k in wish.always]
        if is_any and (of_machines := random.Random(f"{seed}/machines")).random() < 0.25:
            more = tuple(f"{kind}{moment}" for kind in OF_MACHINES for moment in _moments(wish))
            faults.append(_draw_fault(of_machines, horizon, replace(wish, kinds=more)))
        return cls(
            seed,
            program,
            choose("width", 1, 2, 2, 3),
            settings,
            tuple(sorted(faults, key=lambda fault: fault.at)),
            choose("twins", 0.0, 0.0, 0.1, 0.3),
            rnd.choice([1, 4 << 20]),
            mode,
            exchange,
        )


def _restarts(milliseconds: int) -> dict[str, Any]:
    """Restart after this long; the delays grow while something fails again and again."""
    prefix = "restart-strategy.exponential-delay"
    return {
        "restart-strategy.type": "exponential-delay",
        f"{prefix}.initial-backoff": f"{milliseconds} ms",
        f"{prefix}.max-backoff": "500 ms",
        f"{prefix}.backoff-multiplier": 2.0,
        f"{prefix}.reset-backoff-threshold": "1 s",
    }


def _moments(wish: Wish) -> list[str]:
    """At which moments its faults strike, if that is decided."""
    decided = sorted({kind[len(kind.partition(" @ ")[0]) :] for kind in wish.kinds})
    return [*decided, f" @ {BETWEEN_LEVELS}"]


def _draw_fault(rnd: random.Random, horizon: float, wish: Wish) -> Fault:
    weights = [
        1 if each.endswith(RARE) else KINDS.get(each.partition(" @ ")[0], 1) for each in wish.kinds
    ]
    [drawn] = rnd.choices(wish.kinds, weights)
    kind, _, moment = drawn.partition(" @ ")
    if moment:
        at = max(0.0, rnd.uniform(-horizon / 6, horizon / 3))
        return Fault(at, kind, 20 * rnd.randrange(5), rnd.random(), moment)
    aims = wish.aims or (0.6 if wish.moments == MOMENTS else 0.85)
    is_aimed = wish.moments and rnd.random() < aims
    moment = rnd.choice(wish.moments) if is_aimed else ""
    return Fault(rnd.uniform(0.0, horizon), kind, rnd.randrange(100), rnd.random(), moment)
