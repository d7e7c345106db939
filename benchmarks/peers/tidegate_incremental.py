"""Tidegate: how much a RocksDB checkpoint writes when a hundredth of the keys have changed."""

from __future__ import annotations

import time

import tidegate
from benchmarks.peers.protocol import Order, Result, leave, report
from benchmarks.peers.tidegate_peer import environment, start
from benchmarks.peers.tidegate_program import PAIR, FewChanges, RunningSum, TallySink
from tidegate.connectors.datagen import DataGeneratorSource

CHECKPOINTS = 5
"""Taken after every key has been seen; their median counts."""


def main() -> None:
    order = Order.from_arguments()
    env = environment(
        order,
        **{
            "state.backend.type": "rocksdb",
            "execution.checkpointing.incremental": "true",
            "tidegate.step.max-records": "20000",
        },
    )
    source = DataGeneratorSource(FewChanges(order.keys), type_info=PAIR, columnar=True)
    records = env.from_source(source, source_name="records").set_parallelism(1)
    records.key_by(lambda pair: pair[0]).process(RunningSum(), PAIR).sink_to(TallySink())
    job = start(env)
    seen: dict[int, tuple[int, int]] = {}
    while len(seen) < CHECKPOINTS + 1:
        filled = job.progress().records_in > 2 * order.keys
        last = job.checkpoints.latest_completed
        if filled and last is not None:
            seen.setdefault(last.checkpoint_id, (last.incremental_size, last.size))
        time.sleep(0.01)
    job.cancel()
    # The first may have begun before the last new key.
    ratios = sorted(written / full for written, full in list(seen.values())[1:])
    report(
        Result(
            records=0,
            checks=[],
            bounded=False,
            measures={
                "written_over_full": ratios[len(ratios) // 2],
                "full_mb": max(full for _, full in seen.values()) / 1e6,
            },
            versions={"tidegate": tidegate.__version__},
        )
    )
    leave()


if __name__ == "__main__":
    main()
