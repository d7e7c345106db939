"""The limit: a Python loop with a dict over the columns that Tidegate's source cuts, per core.

No stream, no exchange, no commits: each process has its share of the keys from the start. It turns
columns into Python objects, adds to the total of the key and collects a result per record, which is
added up as Tidegate's sink does.
"""

from __future__ import annotations

import multiprocessing
import time
from operator import itemgetter
from typing import Any

import pyarrow as pa

from benchmarks.peers.protocol import Check, Meter, Order, Result, leave, report
from benchmarks.peers.tidegate_program import keys_in_order

BATCH = 8_192
"""Small enough for the objects of a batch to stay in the cache of the processor."""


def run(share: int, order: Order, counts: Any, totals: Any) -> None:
    # A step of an even number of keys takes keys that no other process takes.
    once = keys_in_order(order.keys)[share :: order.parallelism]
    keys = pa.concat_arrays([once] * (1 + -(-BATCH // len(once))))
    ones = pa.array([1] * BATCH, pa.int64())
    known: dict[str, int] = {}
    done = tally = 0
    records = order.records * (share + 1) // order.parallelism
    records -= order.records * share // order.parallelism
    while done < records:
        size = min(BATCH, records - done)
        key_column, value_column = keys.slice(done % len(once), size), ones.slice(0, size)
        results = []
        for key, value in zip(
            key_column.to_pylist(), value_column.to_numpy().tolist(), strict=True
        ):
            total = known.get(key, 0) + value
            known[key] = total
            results.append((key, total))
        tally += sum(map(itemgetter(1), results))
        done += size
        counts[share] = done
    totals[share] = tally


def main() -> None:
    order = Order.from_arguments()
    counts, totals = (multiprocessing.Array("q", order.parallelism, lock=False) for _ in range(2))
    processes = [
        multiprocessing.Process(target=run, args=(share, order, counts, totals))
        for share in range(order.parallelism)
    ]
    meter = Meter()
    for process in processes:
        process.start()
    while any(process.is_alive() for process in processes):
        meter.mark(sum(counts))
        time.sleep(0.05)
    report(
        Result(
            records=sum(counts),
            emitted=sum(counts),
            checks=[Check("sum of all results", sum(counts), sum(totals))],
            samples=meter.samples,
            notes=[f"{order.parallelism} processes, no exchange, no commits"],
        )
    )
    leave()


if __name__ == "__main__":
    main()
