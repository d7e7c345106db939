"""The floor under every step: a warm Spark job of two Python stages that moves four small packets.

It uses public calls only and does nothing of use; Tidegate's own step can be judged against it.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator

import pyspark

from benchmarks.peers import spark_stream
from benchmarks.peers.protocol import Order, Result, leave, report, spread_measures

PACKET = 1_000
WARM_STEPS = 100


def main() -> None:
    order = Order.from_arguments()
    context = spark_stream.session(order).sparkContext
    slots = order.parallelism

    def emit(slot: int, rows: Iterable[int]) -> Iterable[tuple[int, bytes]]:
        for _ in rows:
            pass
        return ((target, bytes(PACKET)) for target in range(slots))

    def receive(slot: int, packets: Iterable[tuple[int, bytes]]) -> Iterator[int]:
        yield sum(len(packet) for _, packet in packets)

    def step() -> float:
        begun = time.perf_counter()
        sources = context.parallelize(range(slots), slots)
        shuffled = sources.mapPartitionsWithIndex(emit).partitionBy(slots, lambda slot: slot)
        moved = shuffled.mapPartitionsWithIndex(receive).collect()
        assert moved == [slots * PACKET] * slots
        return time.perf_counter() - begun

    for _ in range(WARM_STEPS):
        step()
    steps: list[float] = []
    while sum(steps) < order.seconds:
        steps.append(step())
    report(
        Result(
            records=0,
            checks=[],
            measures=spread_measures("step", steps),
            notes=[f"{len(steps)} steps after {WARM_STEPS} to warm up"],
            versions={"pyspark": pyspark.__version__},
        )
    )
    leave()


if __name__ == "__main__":
    main()
