"""Flink SQL's window table-valued functions and interval join.

Records and times are made in Java, as for `flink_sql`. Windows are aggregated in two phases, which
is Flink's default, so what the source has emitted is counted instead of what the last vertex read.
"""

from __future__ import annotations

from importlib.metadata import version

from pyflink.common import Types, WatermarkStrategy
from pyflink.datastream.connectors.number_seq import NumberSequenceSource
from pyflink.table import DataTypes, Schema, StreamTableEnvironment

from benchmarks.peers.flink_cluster import Cluster
from benchmarks.peers.protocol import Check, Order, Result, leave, report
from benchmarks.peers.rule import (
    SESSION_GAP,
    SLIDE,
    WINDOW,
    join_bound,
    sql_key,
    sql_value,
    timeline,
)

VERIFIED = 600_000
SELDOM = {
    "table.exec.mini-batch.enabled": "true",
    "table.exec.mini-batch.allow-latency": "2 s",
    "table.exec.mini-batch.size": "1000000",
}
"""Makes a total change now and then, where each change is a call from Java to Python."""


def _milliseconds(duration: int) -> str:
    return f"interval '{duration / 1000:.3f}' second(3, 3)"


_SIZE, _SLIDE, _GAP = map(_milliseconds, (WINDOW, SLIDE, SESSION_GAP))
TABLES = {
    "tumbling": f"tumble(table records, descriptor(ts), {_SIZE})",
    "sliding": f"hop(table records, descriptor(ts), {_SLIDE}, {_SIZE})",
    "session": f"session(table records partition by k, descriptor(ts), {_GAP})",
}


def results(cluster: Cluster, order: Order, records: int) -> StreamTableEnvironment:
    """A view `results` with a sum per window, or 1 per pair."""
    environment = cluster.environment()
    sql = StreamTableEnvironment.create(environment)
    join = order.workload == "interval-join"
    times = timeline(order.workload, records, order.parallelism)
    for name in ("records", "others") if join else ("records",):
        numbers = environment.from_source(
            NumberSequenceSource(0, records - 1),
            WatermarkStrategy.no_watermarks(),
            name,
            type_info=Types.LONG(),
        )
        schema = (
            Schema.new_builder()
            .column("f0", DataTypes.BIGINT())
            .column_by_expression("ts", f"to_timestamp_ltz({times.sql('f0')}, 3)")
            .watermark("ts", "ts - interval '0.001' second(3, 3)")
            .build()
        )
        sql.create_temporary_view(f"numbers_{name}", numbers, schema)
        key, value = sql_key("f0", order.keys), sql_value("f0")
        sql.execute_sql(
            f"create temporary view {name} as"
            f" select {key} as k, {value} as v, ts from numbers_{name}"
        )
    if join:
        bound = _milliseconds(join_bound(order.keys))
        query = (
            "select l.k, l.v * r.v as total from records l, others r"
            f" where l.k = r.k and r.ts between l.ts and l.ts + {bound}"
        )
    else:
        query = (
            f"select k, sum(v) as total from table({TABLES[order.workload]})"
            " group by k, window_start, window_end"
        )
    sql.execute_sql(f"create temporary view results as {query}")
    return sql


def verify(cluster: Cluster, order: Order, records: int) -> Check:
    sql = results(cluster, order, records)
    for option, value in SELDOM.items():
        sql.get_config().set(option, value)
    total: float = 0
    with sql.execute_sql("select sum(total) from results").collect() as rows:
        for row in rows:
            if str(row.get_row_kind().name) in ("INSERT", "UPDATE_AFTER"):
                total = int(row[0])
    if order.workload == "interval-join":
        total /= order.parallelism  # a record joins that of each reader with its key and time
    return Check("totals of a smaller run of the same query", records, total)


def main() -> None:
    order = Order.from_arguments()
    cluster = Cluster(order, {"state.backend.type": order.options["state_backend"]})
    streams = 2 if order.workload == "interval-join" else 1
    check = verify(cluster, order, min(VERIFIED, order.records // streams))
    sql = results(cluster, order, order.records // streams)
    sql.execute_sql(
        "create temporary table out_sums (k string, total bigint) with ('connector'='blackhole')"
    )
    client = sql.execute_sql("insert into out_sums select * from results").get_job_client()
    assert client is not None
    watched = cluster.watch(
        str(client.get_job_id()),
        sources=("records", "others")[:streams],
        records=order.records // streams * streams,
    )
    report(
        Result(
            records=watched.records,
            checks=[check],
            samples=watched.samples,
            commits=watched.commits,
            commit_interval=watched.commit_interval,
            notes=[f"{order.options['state_backend']} state"],
            versions={"apache-flink": version("apache-flink")},
        )
    )
    leave()


if __name__ == "__main__":
    main()
