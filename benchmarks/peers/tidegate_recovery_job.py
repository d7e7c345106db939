"""The job of `tidegate_recovery`, run by `tidegate run`."""

from __future__ import annotations

from benchmarks.peers.protocol import Order
from benchmarks.peers.tidegate_peer import environment
from benchmarks.peers.tidegate_program import PAIR, FailsOnDemand, FirstResultSink, Records
from tidegate.connectors.datagen import DataGeneratorSource

if __name__ == "__main__":
    order = Order.from_arguments()
    env = environment(
        order,
        **{
            "restart-strategy.type": "fixed-delay",
            "restart-strategy.fixed-delay.attempts": "1000",
            "restart-strategy.fixed-delay.delay": "1 ms",
        },
    )
    source = DataGeneratorSource(Records(order.keys), type_info=PAIR, columnar=True)
    records = env.from_source(source, source_name="records")
    sums = records.key_by(lambda pair: pair[0]).sum(1)
    sums.filter(lambda pair: pair[0] == "k0").map(
        FailsOnDemand(order.scratch), PAIR
    ).set_parallelism(1)
    sums.sink_to(FirstResultSink(order.scratch, order.keys))
    env.execute("recovery")
