"""Spark's `transformWithState`: Python code with keyed state, by rows or by pandas frames.

State is read and written once per key and micro-batch and the loop over the key's records runs in
between, as Spark's own examples do it; every record emits its running total.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pandas as pd
import pyspark
from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as sf
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from benchmarks.peers import spark_stream
from benchmarks.peers.protocol import Check, Order, Result, leave, report

EMITTED = "key string, total bigint"


class RunningSumOfRows(StatefulProcessor):
    def init(self, handle: StatefulProcessorHandle) -> None:
        self._total = handle.getValueState("total", "total bigint")

    def handleInputRows(
        self,
        key: Any,
        rows: Iterator[Any],
        timerValues: Any,  # noqa: N803
    ) -> Iterator[Any]:
        saved = self._total.get()
        total = saved[0] if saved is not None else 0
        for row in rows:
            total += row.value
            yield Row(key=key[0], total=total)
        self._total.update((total,))

    def close(self) -> None:
        pass


class RunningSumOfFrames(StatefulProcessor):
    def init(self, handle: StatefulProcessorHandle) -> None:
        self._total = handle.getValueState("total", "total bigint")

    def handleInputRows(
        self,
        key: Any,
        rows: Iterator[Any],
        timerValues: Any,  # noqa: N803
    ) -> Iterator[Any]:
        saved = self._total.get()
        total = saved[0] if saved is not None else 0
        for frame in rows:
            totals = []
            for value in frame["value"].tolist():
                total += value
                totals.append(total)
            yield pd.DataFrame({"key": key[0], "total": totals})
        self._total.update((total,))

    def close(self) -> None:
        pass


def running_sum(stream: DataFrame, way: str) -> DataFrame:
    groups = stream.groupBy("key")
    if way == "rows":
        sums = groups.transformWithState(RunningSumOfRows(), EMITTED, "Update", "None")
    else:
        sums = groups.transformWithStateInPandas(RunningSumOfFrames(), EMITTED, "Update", "None")
    return sums.observe("out", sf.count(sf.lit(1)).alias("emitted"), sf.sum("total").alias("total"))


def main() -> None:
    order = Order.from_arguments()
    spark = spark_stream.session(order)
    run = spark_stream.run(spark, order, lambda stream: running_sum(stream, order.options["way"]))
    emitted = sum(batch.total for batch in run.batches)
    report(
        Result(
            records=run.records,
            emitted=run.emitted,
            checks=[Check("sum of all emitted results", run.records, emitted)],
            samples=run.samples,
            bounded=False,
            commits=len(run.batches),
            commit_interval=run.commit_interval,
            notes=[f"{run.batch_rows:,} rows a micro-batch"],
            versions={"pyspark": pyspark.__version__},
        )
    )
    leave()


if __name__ == "__main__":
    main()
