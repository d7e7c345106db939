"""How large each measurement is: from seconds wanted and rates known to an order for a peer."""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.cases import WINDOWS, Case, Workload
from benchmarks.peers.protocol import TAIL, Order
from benchmarks.peers.rule import LARGEST_RECORD
from benchmarks.registry import Peer


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """The knobs of a run.

    Attributes:
        seconds: length of the window that is measured.
        warm_seconds: shortest warm-up.
        warm_limit: after this long the window opens even if not every key has been seen.
        commit_seconds: how often a peer that can commit or checkpoint does so.
        parallelism: cores, slots or tasks given to each peer that can use several.
        latency_rate: records per second of the latency workload.
        soak_records: records of the soak.
    """

    seconds: float = 20.0
    warm_seconds: float = 10.0
    warm_limit: float = 90.0
    commit_seconds: float = 1.0
    parallelism: int = 2
    latency_rate: int = 10_000
    soak_records: int = 1_000_000_000

    def __post_init__(self) -> None:
        for name in ("seconds", "warm_limit", "commit_seconds", "parallelism", "latency_rate"):
            if getattr(self, name) <= 0:
                raise ValueError(f"{name} is {getattr(self, name)}; give a number above zero")

    @property
    def time_limit(self) -> float:
        """When a peer is given up: far beyond what it needs even on a busy machine."""
        return 300.0 + 12 * (self.seconds + self.warm_seconds) + 3 * self.warm_limit


QUICK = Sizes(seconds=3.0, warm_seconds=2.0, warm_limit=8.0)


def order_for(peer: Peer, case: Case, sizes: Sizes, scratch: str, scale: float = 1.0) -> Order:
    """The order for one measurement; `scale` enlarges a bounded run that was over too soon."""
    rate = peer.rate(case)
    if case.workload is Workload.SOAK:
        records = sizes.soak_records
    else:
        # Every key once to fill the state, within the warm-up limit, then the window.
        fill = min(case.keys, rate * sizes.warm_limit)
        records = int(scale * (fill + rate * (sizes.warm_seconds + sizes.seconds)) / TAIL)
        if case.workload in WINDOWS:
            # Equal parts for streams and readers, each of whole rounds of keys.
            whole = 2 * sizes.parallelism * case.keys
            records = max(1, records // whole) * whole
    return Order(
        workload=case.workload.value,
        keys=case.keys,
        records=min(records, LARGEST_RECORD),
        seconds=sizes.seconds,
        warm_seconds=sizes.warm_seconds,
        warm_limit=sizes.warm_limit,
        parallelism=case.slots or sizes.parallelism,
        commit_seconds=sizes.commit_seconds,
        batch_records=int(rate * sizes.commit_seconds),
        rate=sizes.latency_rate,
        scratch=scratch,
        options=dict(peer.options),
    )
