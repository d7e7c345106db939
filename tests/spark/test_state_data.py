"""State as DataFrames: read from savepoints and checkpoints, and savepoints made of them."""

import datetime as dt
import pickle
from collections import Counter
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path

import pytest
from pyspark.sql import functions

from tests.jobs import SUM
from tests.savepoints import restored, stored, use
from tests.unit.savepoint.test_reader import KEYS, fill, operator_states
from tidegate import Types, state_reader, state_writer
from tidegate.core.errors import MissingField, StateMisuse, StorageError, TypeMismatch, UnknownState
from tidegate.core.modes import SavepointFormat, StateBackendType
from tidegate.datastream import MapFunction
from tidegate.operators.aggregations.choice import aggregation_operator
from tidegate.operators.aggregations.kinds import Aggregation
from tidegate.state.descriptors import ListStateDescriptor, MapStateDescriptor, ValueStateDescriptor
from tidegate.state.keys.selection import select_key
from tidegate.state.snapshot.reader import StoredImage
from tidegate.testing.environments import mini_environment
from tidegate.testing.harness import HarnessSnapshot, OperatorHarness
from tidegate.types.infer import as_type_info
from tidegate.types.row import Row

pytestmark = [pytest.mark.spark, pytest.mark.slow]


@pytest.fixture(
    params=[(backend, format) for backend in ("hashmap", "rocksdb") for format in SavepointFormat],
    ids=lambda param: f"{param[0]}-{param[1].value}",
)
def savepoint(request, tmp_path):
    backend, format = request.param
    return stored(tmp_path / "savepoint", {"counts": fill}, backend=backend, format=format)


def columns(frame, *names):
    return [tuple(row[name] for name in names) for row in frame.collect()]


def test_a_keyed_state_is_a_frame_with_typed_columns(spark, savepoint):
    reader = state_reader(savepoint, spark)
    counts = reader.keyed_state("counts", "count")
    assert counts.schema.simpleString() == (
        "struct<key_group:int,key:struct<f0:string,f1:bigint>,value:bigint,pickled:binary>"
    )
    assert sorted(columns(counts, "key", "value")) == [(key, key[1]) for key in KEYS]
    assert counts.agg(functions.sum("value")).first()[0] == sum(range(50))
    days = reader.keyed_state("counts", "days")
    assert dict(columns(days, "key", "value"))["user", 3] == {dt.date(2026, 1, 1): 1.5}
    timers = reader.keyed_state("counts", "_timers/event-time")
    assert timers.where("timestamp >= 40000").count() == 10


def test_spark_reads_the_files_of_the_canonical_format_by_itself(spark, tmp_path):
    stored(tmp_path / "savepoint", {"counts": fill})
    frame = spark.read.parquet(str(tmp_path / "savepoint/state/counts/count"))
    assert sorted(columns(frame, "key", "value")) == [(key, key[1]) for key in KEYS]
    items = spark.read.parquet(str(tmp_path / "savepoint/state/counts/items"))
    assert items.select(functions.explode("value")).count() == sum(n % 3 for n in range(50))


VALUES = {
    "times": (dt.time(1, 2), dt.datetime.fromisoformat("2026-01-02"), dt.datetime.now(dt.UTC)),
    "numbers": (True, 2**80, 0.5, Decimal("1.50"), None, b"x"),
    "row": Row(a=1, b=[Row(c="x")]),
    "map": {"a": {1: [None, 2]}},
    "class": Counter("aab"),
}


@pytest.mark.parametrize("format", list(SavepointFormat), ids=lambda format: format.value)
def test_values_of_many_types_are_read_and_written_back_as_they_were(spark, tmp_path, format):
    def put(backend):
        for name, value in VALUES.items():
            if use(backend, name):
                backend.value_state(ValueStateDescriptor(name)).update(value)
                backend.value_state(ValueStateDescriptor("mixed")).update(value)

    reader = state_reader(stored(tmp_path / "savepoint", {"op": put}, format=format), spark)
    edited = reader.edit()
    for name in (*VALUES, "mixed"):
        edited = edited.with_keyed_state("op", name, reader.keyed_state("op", name))
    again = state_reader(edited.write(tmp_path / "again"))
    for name, value in VALUES.items():
        assert dict(again.entries("op", name)) == {name: value}
    assert dict(again.entries("op", "mixed")) == VALUES


def test_parts_of_different_types_are_texts(spark, tmp_path):
    def put(backend):
        state = backend.value_state(ValueStateDescriptor("v"))
        for key in range(20):
            if use(backend, key):
                state.update(key if backend.key_groups.start == 0 else f"text {key}")

    reader = state_reader(stored(tmp_path / "savepoint", {"op": put}), spark)
    frame = reader.keyed_state("op", "v")
    assert frame.schema["value"].dataType.simpleString() == "string"
    found = {pickle.loads(exact) for (exact,) in columns(frame, "pickled")}
    assert found == set(reader.entries("op", "v"))


def test_operator_state_is_a_frame(spark, tmp_path):
    savepoint = stored(
        tmp_path / "savepoint",
        {"op": lambda backend: None},
        states={"op": [operator_states(0), operator_states(1)]},
    )
    reader = state_reader(savepoint, spark)
    offsets = reader.operator_state("op", "offsets")
    assert columns(offsets, "subtask", "value") == [(0, 0), (0, 10), (1, 1), (1, 10)]
    rules = reader.operator_state("op", "rules")
    assert columns(rules, "subtask", "key", "value") == [(0, "limit", 5), (1, "limit", 5)]


def test_a_changed_state_takes_the_place_of_the_old_and_all_else_is_carried_over(spark, savepoint):
    reader = state_reader(savepoint, spark)
    counts = reader.keyed_state("counts", "count")
    changed = counts.where("value >= 10").withColumn("value", functions.col("value") * 2)
    written = (
        reader.edit().with_keyed_state("counts", "count", changed).write(savepoint.parent / "b")
    )
    after = state_reader(written, spark)
    expected = {key: 2 * key[1] for key in KEYS if key[1] >= 10}
    assert dict(after.entries("counts", "count")) == expected
    for name in ("items", "days", "_timers/event-time"):
        assert dict(after.entries("counts", name)) == dict(reader.entries("counts", name))
    for backend in ("hashmap", "rocksdb"):
        live = restored(after, "counts", backend)
        assert sorted(live.keys("count")) == sorted(expected)
        assert len(live.event_timers) == 50
        live.close()
    assert after.metadata.job_id == reader.metadata.job_id


def test_an_untouched_copy_holds_the_same_and_needs_nothing_of_the_old(spark, savepoint):
    reader = state_reader(savepoint)
    before = {name: dict(reader.entries("counts", name)) for name in ("count", "items", "days")}
    copy = state_reader(reader.edit().write(savepoint.parent / "copy"))
    savepoint.rename(savepoint.with_name("away"))
    assert {name: dict(copy.entries("counts", name)) for name in before} == before
    assert copy.edit().without("counts").write(savepoint.parent / "empty")
    assert state_reader(savepoint.parent / "empty").operators() == []


def test_a_state_is_skipped(spark, savepoint):
    reader = state_reader(savepoint)
    path = reader.edit().without("counts", "items").write(savepoint.parent / "b")
    [operator] = state_reader(path).operators()
    assert {state.name for state in operator.states} == {"count", "days", "_timers/event-time"}
    with pytest.raises(UnknownState, match="has no keyed state 'x'"):
        reader.edit().without("counts", "x")


@dataclass
class Profile:
    name: str
    visits: int


def test_a_state_is_made_of_a_table(spark, tmp_path):
    table = spark.range(1000).selectExpr(
        "concat('user ', id) AS user",
        "id",
        "named_struct('name', concat('n', id), 'visits', cast(id AS int)) AS profile",
        "CASE WHEN id % 2 = 0 THEN array(id, id + 1) END AS ids",
        "map(cast(id AS string), id / 2) AS ratios",
    )
    path = (
        state_writer(max_parallelism=16)
        .with_keyed_state(
            "a", ValueStateDescriptor("id", Types.LONG()), table, key="user", value="id"
        )
        .with_keyed_state(
            "a",
            ValueStateDescriptor("profile", as_type_info(Profile)),
            table,
            key="user",
            value="profile",
        )
        .with_keyed_state("a", "ids", table, key="user", value="ids", kind="list", type_info=int)
        .with_keyed_state(
            "b",
            MapStateDescriptor("ratios", Types.STRING(), Types.DOUBLE()),
            table,
            key=["user", "id"],
            value="ratios",
        )
        .write(tmp_path / "made")
    )
    reader = state_reader(path)
    users = range(1000)
    assert dict(reader.entries("a", "id")) == {f"user {n}": n for n in users}
    profiles = dict(reader.entries("a", "profile"))
    assert profiles == {f"user {n}": Profile(f"n{n}", n) for n in users}
    assert dict(reader.entries("a", "ids")) == {f"user {n}": [n, n + 1] for n in users[::2]}
    assert dict(reader.entries("b", "ratios")) == {(f"user {n}", n): {str(n): n / 2} for n in users}
    declared = {state.name: state for state in reader.operator("a").subtasks[0].keyed.metadata}
    assert declared["ids"].declaration == ListStateDescriptor("ids", Types.LONG()).declaration
    files = {str(file.relative_to(path)) for file in Path(path).rglob("*.parquet")}
    assert files == {file.name for file in reader.metadata.files}


def test_a_job_starts_from_a_table(spark, tmp_path):
    table = spark.createDataFrame([("a", 100), ("b", 200)], "user string, total long")
    path = (
        state_writer()
        .with_keyed_state("sums", SUM, table, key="user", value="total")
        .write(tmp_path / "made")
    )
    with mini_environment({"execution.state-recovery.path": path}, parallelism=2) as env:
        records = env.from_collection([("a", 1), ("b", 2), ("c", 3)])
        sums = records.key_by(lambda record: record[0]).map(Sums()).uid("sums")
        found = sums.execute_and_collect(limit=9)
    assert sorted(found) == [("a", 101), ("b", 202), ("c", 3)]


class Sums(MapFunction):
    def open(self, runtime_context):
        self.sum = runtime_context.get_state(SUM)

    def map(self, value):
        total = (self.sum.value() or 0) + value[1]
        self.sum.update(total)
        return value[0], total


SALES = Types.TUPLE([Types.STRING(), Types.STRING(), Types.LONG()])


@pytest.mark.parametrize("settings", [{}, {"state.backend.type": StateBackendType.ROCKSDB}])
@pytest.mark.parametrize("key", [0, (0, 1)])
def test_the_state_of_an_aggregation_is_read_changed_and_gone_on_with(
    spark, tmp_path, key, settings
):
    operator = aggregation_operator(Aggregation.SUM, 2, select_key(key, SALES), SALES)
    with OperatorHarness(operator, settings=settings) as harness:
        harness.process([("a", "x", 1), ("b", "y", 2), ("a", "x", 3)], type_info=SALES)
        savepoint = stored(
            tmp_path / "savepoint", {"sums": lambda _: harness.snapshot().keyed}, parallelism=1
        )
    reader = state_reader(savepoint, spark)
    [state] = reader.operators()[0].states
    frame = reader.keyed_state("sums", state.name)
    keys = {0: ["a", "b"], (0, 1): [("a", "x"), ("b", "y")]}[key]
    assert sorted(columns(frame, "key", "sum")) == list(zip(keys, [4, 2], strict=True))
    changed = frame.withColumn("sum", functions.col("sum") + 1000)
    path = reader.edit().with_keyed_state("sums", state.name, changed).write(tmp_path / "changed")
    after = state_reader(path)
    image = StoredImage(after.operator("sums").subtasks[0].keyed, after.resolve)
    snapshot = HarnessSnapshot(keyed=image)
    with OperatorHarness(operator, settings=settings, restore_from=[snapshot]) as harness:
        harness.process([("a", "x", 1), ("b", "y", 1)], type_info=SALES)
        assert harness.output == [("a", "x", 1005), ("b", "y", 1003)]


def test_what_a_table_lacks_is_said_before_anything_is_written(spark, tmp_path):
    table = spark.createDataFrame([("a", 1.5), ("a", 2.5)], "user string, total double")
    empty = state_writer()
    with pytest.raises(MissingField, match="no field 'key'; the fields are: user, total"):
        empty.with_keyed_state("sums", SUM, table).write(tmp_path / "made")
    texts = table.withColumn("total", functions.lit("x"))
    wrong = empty.with_keyed_state("sums", SUM, texts, key="user", value="total")
    with pytest.raises(TypeMismatch, match="Long"):
        wrong.write(tmp_path / "made")
    descriptor = ValueStateDescriptor("total", Types.DOUBLE())
    twice = empty.with_keyed_state("sums", descriptor, table, key="user", value="total")
    with pytest.raises(StateMisuse, match="the key 'a' occurs in several rows for the state"):
        twice.write(tmp_path / "made")
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "made").mkdir()
    (tmp_path / "made" / "file").write_text("mine")
    with pytest.raises(StorageError, match="it already exists"):
        empty.write(tmp_path / "made")
    assert (tmp_path / "made" / "file").read_text() == "mine"
