"""Polars: the running sum of a whole table that already lies in memory, on all cores.

No stream, no state, no commits: the ceiling. The table is made beforehand and passes over it are
repeated; only the passes are measured.
"""

from __future__ import annotations

import time
from importlib.metadata import version

import polars as pl

from benchmarks.peers.protocol import Check, Order, Pace, Result, leave, report
from benchmarks.peers.rule import key_cycle


def table(records: int, keys: int) -> pl.DataFrame:
    positions = pl.int_range(records, eager=True) % keys
    return pl.DataFrame(
        {
            "key": pl.Series(key_cycle(keys)).gather(positions),
            "value": pl.repeat(1, records, dtype=pl.Int64, eager=True),
        }
    )


def main() -> None:
    order = Order.from_arguments()
    rows = min(int(order.options["rows"]), order.records)
    frame = table(rows, order.keys)
    totals = pl.col("value").cum_sum().over("key")
    pace = Pace(order)
    done = 0
    samples = [(time.time(), 0)]
    sums = frame.clear()
    while not pace.enough(done):
        sums = frame.select(totals)
        done += rows
        samples.append((time.time(), done))
    checksum = int(sums["value"].sum())
    report(
        Result(
            records=done,
            emitted=done,
            checks=[Check("sum of the last pass", rows, checksum)],
            samples=samples,
            bounded=False,
            notes=[f"passes over {rows:,} rows in memory"],
            versions={"polars": version("polars")},
        )
    )
    leave()


if __name__ == "__main__":
    main()
