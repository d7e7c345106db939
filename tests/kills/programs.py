"""The programs that are killed, and their expected results.

A result is three numbers. All results pass through `Seen`, which records the processes of the
slots.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from tests.kills.source import Numbers, read_number
from tidegate import StreamExecutionEnvironment, Types, WatermarkStrategy
from tidegate.common import SimpleStringSchema
from tidegate.core import fault_points
from tidegate.datastream import DataStream, KeyedProcessFunction, ProcessJoinFunction
from tidegate.datastream.connectors.base import DeliveryGuarantee
from tidegate.datastream.connectors.file_system import (
    CsvEncoding,
    FileSink,
    FileSource,
    TextLineFormat,
)
from tidegate.datastream.connectors.kafka import (
    KafkaOffsetsInitializer,
    KafkaRecordSerializationSchema,
    KafkaSink,
    KafkaSource,
    KafkaTopicPartition,
)
from tidegate.datastream.connectors.postgres import PostgresSink
from tidegate.datastream.functions import MapFunction, RuntimeContext
from tidegate.datastream.state import ValueStateDescriptor
from tidegate.datastream.window import TumblingEventTimeWindows
from tidegate.verify.content import read_content

SPLITS = 3
TOTAL = 600
"""Records per split."""
KEYS = 17
WINDOW = 50
NEAR = 2
_SECONDS_PER_EARLY_LINE = 0.1
PAIR = Types.TUPLE([Types.LONG(), Types.LONG()])
TRIPLE = Types.TUPLE([Types.LONG(), Types.LONG(), Types.LONG()])
Triple = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class Place:
    """The input and output of a job."""

    name: str
    directory: Path
    brokers: str
    database: str

    @property
    def released(self) -> Path:
        """How many records of each split may be read."""
        return self.directory / "released"

    @property
    def slots(self) -> Path:
        return self.directory / "slots"

    @property
    def orders(self) -> Path:
        """The directory of orders: which process dies at which point of the protocol."""
        return self.directory / "orders"

    @property
    def checkpoints(self) -> Path:
        return self.directory / "disk" / "checkpoints"

    @property
    def results(self) -> Path:
        return self.directory / "disk" / "results"

    @property
    def lines(self) -> Path:
        return self.directory / "lines"


class Seen(MapFunction):
    """Records the process of its slot, and the JVM that it belongs to.

    It carries the orders of its job: Spark's workers are forked for all jobs alike.
    """

    def __init__(self, place: Place) -> None:
        self._directory, self._orders = place.slots, place.orders

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        obey(self._orders)

    def open(self, runtime_context: RuntimeContext) -> None:
        me = psutil.Process()
        java = next(parent.pid for parent in me.parents() if "java" in parent.name())
        subtask = runtime_context.get_index_of_this_subtask()
        fresh = self._directory / f".{subtask}-{me.pid}"
        fresh.write_text(f"{me.pid} {java}")
        fresh.replace(self._directory / f"slot-{subtask}")

    def map(self, value: Any) -> Any:
        return value


class Count(KeyedProcessFunction):
    """The key, its number of records so far, and the number of the record."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self._count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element(self, value: tuple[int, int], ctx: Any) -> Iterator[Triple]:
        count = (self._count.value() or 0) + 1
        self._count.update(count)
        yield ctx.get_current_key(), count, value[0] * TOTAL + value[1]


class Match(ProcessJoinFunction):
    def process_element(self, left: Any, right: Any, ctx: Any) -> Iterator[Triple]:
        yield left[0], left[1], right[1]


def obey(orders: Path) -> None:
    """Let this process die according to the orders in a directory."""
    fault_points._orders = fault_points._Orders(orders)  # type: ignore[misc]


def build(program: str, env: StreamExecutionEnvironment, place: Place) -> None:
    _BUILD[program](env, place)


def _numbers(env: StreamExecutionEnvironment, place: Place, name: str = "numbers") -> DataStream:
    source = Numbers(place.released, SPLITS, TOTAL)
    return env.from_source(source, None, name, type_info=PAIR).uid(name)


def _timed(env: StreamExecutionEnvironment, place: Place, name: str) -> DataStream:
    """Pairs (key, position), with their position as timestamp."""
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(
        lambda record, _: record[1]
    )
    source = Numbers(place.released, SPLITS, TOTAL)
    numbers = env.from_source(source, strategy, name, type_info=PAIR).uid(name)
    return numbers.map(lambda record: (_key(*record), record[1]), PAIR).uid(f"{name} by key")


def _key(number: int, position: int) -> int:
    return (position * 7 + number) % KEYS


def _counted(records: DataStream, name: str = "counts") -> DataStream:
    return records.key_by(lambda record: _key(*record)).process(Count(), TRIPLE).uid(name)


def _seen(results: DataStream, place: Place) -> DataStream:
    return results.map(Seen(place), TRIPLE).uid("seen")


def _to_files(results: DataStream, path: Path, name: str = "files") -> None:
    results.sink_to(FileSink(str(path), CsvEncoding(header=False))).uid(name)


def _counts(env: StreamExecutionEnvironment, place: Place) -> None:
    _to_files(_seen(_counted(_numbers(env, place)), place), place.results)


def _windows(env: StreamExecutionEnvironment, place: Place) -> None:
    placed = _timed(env, place, "numbers").map(
        lambda record: (record[0], record[1] // WINDOW * WINDOW, record[1]), TRIPLE
    )
    windows = placed.uid("placed").key_by(0).window(TumblingEventTimeWindows.of(WINDOW))
    _to_files(_seen(windows.sum(2).uid("sums"), place), place.results)


def _joins(env: StreamExecutionEnvironment, place: Place) -> None:
    left, right = (_timed(env, place, name) for name in ("left", "right"))
    joined = left.key_by(lambda r: r[0]).interval_join(right.key_by(lambda r: r[0]))
    pairs = joined.between(-NEAR, NEAR).process(Match(), TRIPLE).uid("pairs")
    _to_files(_seen(pairs, place), place.results)


def _pipelines(env: StreamExecutionEnvironment, place: Place) -> None:
    _to_files(_seen(_counted(_numbers(env, place)), place), place.results / "0")
    others = _counted(_numbers(env, place, "others"), "more counts")
    _to_files(others, place.results / "1", "more files")


def _files(env: StreamExecutionEnvironment, place: Place) -> None:
    source = FileSource.for_record_stream_format(TextLineFormat(), str(place.lines)).build()
    lines = env.from_source(source, None, "lines").uid("lines")
    pairs = lines.map(_Slowly(place.released), PAIR).uid("pairs")
    _to_files(_seen(_counted(pairs), place), place.results)


class _Slowly(MapFunction):
    """The pair of a line; waits until it is released."""

    def __init__(self, released: Path) -> None:
        self._released = released

    def map(self, value: str) -> tuple[int, int]:
        number, position = map(int, value.split(","))
        if read_number(self._released) <= position:
            time.sleep(_SECONDS_PER_EARLY_LINE)
        return number, position


def _from_kafka(env: StreamExecutionEnvironment, place: Place) -> DataStream:
    stop = {KafkaTopicPartition(place.name, number): TOTAL for number in range(SPLITS)}
    source = (
        KafkaSource.builder()
        .set_bootstrap_servers(place.brokers)
        .set_topics(place.name)
        .set_starting_offsets(KafkaOffsetsInitializer.earliest())
        .set_bounded(KafkaOffsetsInitializer.offsets(stop))
        .set_value_only_deserializer(SimpleStringSchema())
        .build()
    )
    lines = env.from_source(source, None, "lines", type_info=Types.STRING()).uid("lines")
    pairs = lines.map(lambda line: tuple(map(int, line.split(","))), PAIR).uid("pairs")
    return _seen(_counted(pairs), place)


def _kafka_kafka(env: StreamExecutionEnvironment, place: Place) -> None:
    lines = _from_kafka(env, place).map(lambda r: ",".join(map(str, r)), Types.STRING())
    schema = KafkaRecordSerializationSchema.builder().set_topic(f"{place.name}-results")
    sink = (
        KafkaSink.builder()
        .set_bootstrap_servers(place.brokers)
        .set_delivery_guarantee(DeliveryGuarantee.EXACTLY_ONCE)
        .set_transactional_id_prefix(place.name)
        .set_record_serializer(schema.set_value_serialization_schema(SimpleStringSchema()).build())
        .build()
    )
    lines.uid("results").sink_to(sink).uid("topic")


def _kafka_postgres(env: StreamExecutionEnvironment, place: Place) -> None:
    sink = PostgresSink(place.database, place.name, columns=["key", "count", "record"])
    _from_kafka(env, place).sink_to(sink).uid("table")


_BUILD: dict[str, Callable[[StreamExecutionEnvironment, Place], None]] = {
    "counts": _counts,
    "windows": _windows,
    "joins": _joins,
    "pipelines": _pipelines,
    "files": _files,
    "kafka_kafka": _kafka_kafka,
    "kafka_postgres": _kafka_postgres,
}


def found(program: str, place: Place) -> Counter[Any]:
    """The contents of the sinks."""
    if program == "kafka_kafka":
        topic = read_content(f"kafka://{place.brokers}/{place.name}-results", place.name)
        return _counted_facts(_triple(value.decode()) for _, value in topic.elements())
    if program == "kafka_postgres":
        return _counted_facts(read_content(f"{place.database}#{place.name}", "").elements())
    if program == "pipelines":
        return Counter(
            (number, *fact)
            for number in (0, 1)
            for fact in _counted_facts(_lines(place.results / str(number))).elements()
        )
    triples = _lines(place.results)
    return Counter(triples) if program in ("windows", "joins") else _counted_facts(triples)


def _lines(path: Path) -> Iterator[Triple]:
    return (_triple(line) for line in read_content(str(path), "").elements())


def _triple(line: str) -> Triple:
    key, second, third = map(int, line.split(","))
    return key, second, third


def _counted_facts(triples: Iterable[Any]) -> Counter[Any]:
    """Which record has which count is random, so both are counted separately."""
    facts: Counter[Any] = Counter()
    for key, count, record in triples:
        facts["count", key, count] += 1
        facts["record", record] += 1
    return facts


def expected(program: str) -> Counter[Any]:
    records = [(number, position) for number in range(SPLITS) for position in range(TOTAL)]
    keyed = [(_key(*record), record[1]) for record in records]
    if program == "windows":
        sums: Counter[tuple[int, int]] = Counter()
        for key, position in keyed:
            sums[key, position // WINDOW * WINDOW] += position
        return Counter((key, start, total) for (key, start), total in sums.items())
    if program == "joins":
        near = range(-NEAR, NEAR + 1)
        right = Counter(keyed)
        return Counter(
            {
                (key, position, position + distance): times * right[key, position + distance]
                for (key, position), times in right.items()
                for distance in near
                if right[key, position + distance]
            }
        )
    seen: Counter[int] = Counter()
    triples = []
    for number, position in records:
        key = _key(number, position)
        seen[key] += 1
        triples.append((key, seen[key], number * TOTAL + position))
    facts = _counted_facts(triples)
    if program == "pipelines":
        return Counter((number, *fact) for number in (0, 1) for fact in facts)
    return facts
