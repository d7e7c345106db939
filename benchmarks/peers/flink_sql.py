"""Flink SQL: `SUM ... GROUP BY` with a result for every record (mini-batch is off).

The source is the number sequence source of Flink's DataStream API, in Java: the SQL connector
`datagen` was half as fast and kept checkpoints waiting. The sink is `blackhole`, and Flink's own
counters say how many records came in; so the totals are verified by a run of the same query on
fewer records whose results are added up by a second aggregation.
"""

from __future__ import annotations

from importlib.metadata import version

from pyflink.common import Types, WatermarkStrategy
from pyflink.datastream.connectors.number_seq import NumberSequenceSource
from pyflink.table import StreamTableEnvironment

from benchmarks.peers.flink_cluster import Cluster
from benchmarks.peers.protocol import Check, Order, Result, leave, report
from benchmarks.peers.rule import sql_key, sql_value

VERIFIED = 300_000


def tables(cluster: Cluster, records: int, keys: int) -> StreamTableEnvironment:
    environment = cluster.environment()
    numbers = environment.from_source(
        NumberSequenceSource(0, records - 1),
        WatermarkStrategy.no_watermarks(),
        "numbers",
        type_info=Types.LONG(),
    )
    sql = StreamTableEnvironment.create(environment)
    sql.create_temporary_view("numbers", sql.from_data_stream(numbers).alias("i"))
    sql.execute_sql(
        f"create temporary view records as select {sql_key('i', keys)} as k,"
        f" {sql_value('i')} as v from numbers"
    )
    sql.execute_sql(
        "create temporary view sums as select k, sum(v) as total from records group by k"
    )
    return sql


def verify(cluster: Cluster, records: int, keys: int) -> Check:
    """Add the totals of a smaller run up, and let only the state after the last record out."""
    sql = tables(cluster, records, keys)
    result = sql.execute_sql(
        "select checksum from (select sum(total) as seen, sum(total * (total + 1) / 2) as checksum"
        f" from sums) where seen = {records}"
    )
    checksum = 0
    with result.collect() as rows:
        for row in rows:
            if str(row.get_row_kind().name) in ("INSERT", "UPDATE_AFTER"):
                checksum = int(row[0])
    return Check("totals of a smaller run of the same query", records, checksum)


def main() -> None:
    order = Order.from_arguments()
    backend = order.options["state_backend"]
    cluster = Cluster(order, {"state.backend.type": backend})
    check = verify(cluster, min(max(VERIFIED, 2 * order.keys), order.records), order.keys)
    sql = tables(cluster, order.records, order.keys)
    sql.execute_sql(
        "create temporary table out_sums (k string, total bigint) with ('connector'='blackhole')"
    )
    client = sql.execute_sql("insert into out_sums select * from sums").get_job_client()
    assert client is not None
    watched = cluster.watch(str(client.get_job_id()))
    report(
        Result(
            records=watched.records,
            emitted=watched.records,
            checks=[check],
            samples=watched.samples,
            commits=watched.commits,
            commit_interval=watched.commit_interval,
            notes=[f"{backend} state", "mini-batch off"],
            versions={"apache-flink": version("apache-flink")},
        )
    )
    leave()


if __name__ == "__main__":
    main()
