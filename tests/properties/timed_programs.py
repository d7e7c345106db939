"""Random programs over event time, and how they are interrupted on their way.

A record is (key, number, time) between all stages. The first stage reads one channel, so it sees
records and watermarks in the same order in every run, and late records are the same ones. Later
stages read several: there, no record is late, and what depends on an order comes only where there
is one. So a program has one result, as a multiset, whatever happens to it.
"""

from __future__ import annotations

import asyncio
import uuid
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from hypothesis import note
from hypothesis import strategies as st

from tests.programs import PATIENCE, wait_until
from tests.properties.ledgers import Ledger, Transfers
from tests.taps import Tap
from tidegate.common import WatermarkGenerator, WatermarkStrategy
from tidegate.common.job_client import JobClient
from tidegate.core.errors import NotNow, SavepointFailed
from tidegate.core.ids import SlotIndex
from tidegate.core.modes import SavepointFormat
from tidegate.datastream import (
    AsyncDataStream,
    AsyncFunction,
    DataStream,
    KeyedProcessFunction,
    OutputTag,
)
from tidegate.datastream.aggregates import count, max_, sum_
from tidegate.datastream.connectors.file_system import BucketAssigner, Encoder, FileSink
from tidegate.datastream.functions import (
    AggregateFunction,
    CoGroupFunction,
    JoinFunction,
    KeyedCoProcessFunction,
    MapFunction,
    ProcessJoinFunction,
    ProcessWindowFunction,
)
from tidegate.datastream.state import (
    ListStateDescriptor,
    MapStateDescriptor,
    ValueStateDescriptor,
)
from tidegate.datastream.window import (
    ContinuousEventTimeTrigger,
    CountEvictor,
    CountTrigger,
    EventTimeSessionWindows,
    PurgingTrigger,
    SlidingEventTimeWindows,
    TumblingEventTimeWindows,
)
from tidegate.protocol.job_status import JobStatus
from tidegate.testing.environments import mini_environment
from tidegate.types.typeinfo import Types

Record = tuple[int, int, int]
RECORD = Types.TUPLE([Types.LONG(), Types.LONG(), Types.LONG()])
LATE = OutputTag("late", RECORD)
DISORDER = 30
LAST = 10**6
"""A time after that of all records."""
TROUBLES: set[str] = set()
"""The runs whose function has to fail once."""


# --- functions ----------------------------------------------------------------------------------


class EveryOther(WatermarkGenerator):
    """Emits a watermark after every second record: what it counts is restored."""

    def __init__(self, distance: int) -> None:
        self.distance = distance
        self.count = 0
        self.highest = 0

    def on_event(self, event: Any, event_timestamp: int, output: Any) -> None:
        self.count += 1
        self.highest = max(self.highest, event_timestamp)
        if self.count % 2 == 0:
            output.emit_watermark(self.highest - self.distance)

    def on_periodic_emit(self, output: Any) -> None: ...


class Troubled(MapFunction):
    """Fails where a test wants it to."""

    def __init__(self, run: str) -> None:
        self.run = run

    def map(self, value: Any) -> Any:
        if self.run in TROUBLES:
            TROUBLES.discard(self.run)
            raise RuntimeError("told to fail")
        return value


class Running(KeyedProcessFunction):
    """Results that tell the order in which the records of a key came."""

    def open(self, runtime_context: Any) -> None:
        self.last = runtime_context.get_state(ValueStateDescriptor("last", RECORD))
        self.numbers = runtime_context.get_list_state(ListStateDescriptor("numbers", Types.LONG()))
        self.times = runtime_context.get_map_state(
            MapStateDescriptor("times", Types.LONG(), Types.LONG())
        )

    def process_element(self, value: Record, ctx: Any) -> Any:
        key, number, time = value
        last = self.last.value() or (0, 0, 0)
        self.last.update(value)
        self.numbers.add(number)
        self.times.put(time, number)
        yield key, 7 * last[1] + sum(self.numbers.get()) + sum(self.times.values()), time


class Timed(KeyedProcessFunction):
    """A timer for every record that is not late, which tells what came before it."""

    def open(self, runtime_context: Any) -> None:
        self.sum = runtime_context.get_state(ValueStateDescriptor("sum", Types.LONG()))

    def process_element(self, value: Record, ctx: Any) -> Any:
        if value[2] <= ctx.timer_service().current_watermark():
            yield LATE, value
            return
        self.sum.update((self.sum.value() or 0) + value[1])
        ctx.timer_service().register_event_time_timer(value[2] + value[1] % 3)
        if value[1] % 5 == 0:
            ctx.timer_service().delete_event_time_timer(value[2])

    def on_timer(self, timestamp: int, ctx: Any) -> Any:
        yield ctx.get_current_key(), self.sum.value(), timestamp


class Lookup(AsyncFunction):
    async def async_invoke(self, value: Record) -> list[Record]:
        await asyncio.sleep(value[1] % 3 / 1000)
        return [(value[0], value[1] + 1, value[2])] * (1 + value[1] % 2)


class Digest(AggregateFunction):
    """Its accumulator is changed in place."""

    def create_accumulator(self) -> list[int]:
        return [0, 0, 0]

    def add(self, value: Record, accumulator: list[int]) -> list[int]:
        accumulator[0] = max(accumulator[0], value[0])
        accumulator[1] += value[1]
        accumulator[2] = max(accumulator[2], value[2])
        return accumulator

    def get_result(self, accumulator: list[int]) -> Record:
        return accumulator[0], accumulator[1], accumulator[2]

    def merge(self, first: list[int], second: list[int]) -> list[int]:
        return [max(first[0], second[0]), first[1] + second[1], max(first[2], second[2])]


class Listed(ProcessWindowFunction):
    """Counts in a state of the key, and one of the window."""

    def process(self, key: int, context: Any, elements: Any) -> Any:
        descriptor = ValueStateDescriptor("fired", Types.LONG())
        fired = context.window_state().get_state(descriptor)
        fired.update((fired.value() or 0) + 1)
        numbers = sorted(each[1] for each in elements)
        yield key, sum(numbers) + 1000 * fired.value(), context.window().max_timestamp()

    def clear(self, context: Any) -> None:
        context.window_state().get_state(ValueStateDescriptor("fired", Types.LONG())).clear()


class Pairs(ProcessJoinFunction, JoinFunction):
    def process_element(self, left: Record, right: Record, ctx: Any) -> Any:
        yield self.join(left, right)

    def join(self, first: Record, second: Record) -> Record:
        return first[0], first[1] * 3 + second[1], max(first[2], second[2])


class Both(CoGroupFunction):
    def co_group(self, first: Any, second: Any) -> Any:
        left, right = list(first), list(second)
        key = (left or right)[0][0]
        yield key, sum(n for _, n, _ in left) * 3 + sum(n for _, n, _ in right), len(left)


class Totals(KeyedCoProcessFunction):
    """What came of a key on both inputs, told when they have ended; one of them ends soon."""

    def open(self, runtime_context: Any) -> None:
        self.sum = runtime_context.get_state(ValueStateDescriptor("sum", Types.LONG()))

    def process_element1(self, value: Record, ctx: Any) -> None:
        self.sum.update((self.sum.value() or 0) + value[1])
        ctx.timer_service().register_event_time_timer(LAST)

    process_element2 = process_element1

    def on_timer(self, timestamp: int, ctx: Any) -> Any:
        yield ctx.get_current_key(), self.sum.value(), timestamp


def key_of(record: Record) -> int:
    return record[0]


def added(first: Record, second: Record) -> Record:
    return first[0], first[1] + second[1], max(first[2], second[2])


def shifted(record: Record) -> Record:
    return record[0], record[1] + 100, record[2]


def tupled(row: Any) -> Record:
    key, number, time = tuple(row)[:3]
    return int(key), int(number), int(time)


# --- stages -------------------------------------------------------------------------------------

Build = Callable[["Building", DataStream], DataStream]


@dataclass
class Building:
    """A program that is being put together."""

    type: Any
    key: Any
    lateness: int
    late: list[DataStream] = field(default_factory=list)

    def windows(self, stream: DataStream, assigner: Any) -> Any:
        windows = stream.key_by(self.key).window(assigner)
        return windows.allowed_lateness(self.lateness).side_output_late_data(LATE)

    def tell_late(self, stream: DataStream) -> DataStream:
        self.late.append(stream.get_side_output(LATE))
        return stream


def _windowed(apply: Callable[[Any, Building], DataStream], assigner: Any) -> Build:
    return lambda b, stream: b.tell_late(apply(b.windows(stream, assigner), b))


def _aggregated(assigner: Any) -> Build:
    build = _windowed(lambda w, b: w.agg(n=sum_(1), t=max_(2), c=count()), assigner)
    return lambda b, stream: build(b, stream).map(tupled, b.type)


TUMBLING = TumblingEventTimeWindows.of(20)
SLIDING = SlidingEventTimeWindows.of(30, 10)
SESSION = EventTimeSessionWindows.with_gap(6)
OTHERS = [(number % 7, number, 0) for number in range(20)]
ORDERED: dict[str, Build] = {
    "running": lambda b, s: s.key_by(b.key).process(Running(), b.type),
    "reduce": lambda b, s: s.key_by(b.key).reduce(added),
    "sum": lambda b, s: s.key_by(b.key).sum(1),
    "max by": lambda b, s: s.key_by(b.key).max_by(1),
    "agg": lambda b, s: s.key_by(b.key).agg(n=sum_(1), t=max_(2)).map(tupled, b.type),
    "count windows": lambda b, s: s.key_by(b.key).count_window(3).reduce(added),
    "sliding count": lambda b, s: (
        s.key_by(b.key).count_window(4, 2).aggregate(Digest(), output_type=b.type)
    ),
    "async in order": lambda b, s: AsyncDataStream.ordered_wait(
        s, Lookup(), 0, 3, b.type
    ).set_parallelism(1),
}
"""Results tell the order in which the records of a key came; no watermark matters."""
WINDOWS: dict[str, Build] = {
    "tumbling sum": _windowed(lambda w, b: w.sum(1), TUMBLING),
    "tumbling reduce": _windowed(lambda w, b: w.reduce(added), TUMBLING),
    "sliding agg": _aggregated(SLIDING),
    "sliding aggregate": _windowed(lambda w, b: w.aggregate(Digest(), output_type=b.type), SLIDING),
    "tumbling process": _windowed(lambda w, b: w.process(Listed(), b.type), TUMBLING),
    "session agg": _aggregated(SESSION),
    "session aggregate": _windowed(lambda w, b: w.aggregate(Digest(), output_type=b.type), SESSION),
    "all": lambda b, s: s.window_all(TUMBLING).aggregate(Digest(), output_type=b.type),
}
"""What is in a window does not depend on when its records come."""
FIRST: dict[str, Build] = {
    **WINDOWS,
    "timers": lambda b, s: b.tell_late(s.key_by(b.key).process(Timed(), b.type)),
    "count trigger": _windowed(
        lambda w, b: w.trigger(PurgingTrigger.of(CountTrigger.of(2))).reduce(added), TUMBLING
    ),
    "continuous trigger": _windowed(
        lambda w, b: w.trigger(ContinuousEventTimeTrigger.of(7)).process(Listed(), b.type), TUMBLING
    ),
    "session trigger": _windowed(
        lambda w, b: w.trigger(ContinuousEventTimeTrigger.of(4)).reduce(added), SESSION
    ),
    "evictor": _windowed(lambda w, b: w.evictor(CountEvictor.of(2)).reduce(added), SLIDING),
}
"""Stages that late records may reach."""
MIXING: dict[str, Build] = {
    "async": lambda b, s: AsyncDataStream.unordered_wait(s, Lookup(), 0, 3, b.type),
    "union": lambda b, s: s.union(s.map(shifted, b.type)).map(shifted, b.type),
    "interval join": lambda b, s: (
        s.key_by(b.key)
        .interval_join(s.map(shifted, b.type).key_by(b.key))
        .between(-5, 3)
        .process(Pairs(), b.type)
    ),
    "window join": lambda b, s: (
        s.join(s.map(shifted, b.type))
        .where(b.key)
        .equal_to(b.key)
        .window(TUMBLING)
        .apply(Pairs(), b.type)
    ),
    "connect": lambda b, s: (
        s.connect(s.get_execution_environment().from_collection(OTHERS, b.type))
        .key_by(b.key, b.key)
        .process(Totals(), b.type)
    ),
    "co group": lambda b, s: (
        s.co_group(s.map(shifted, b.type))
        .where(b.key)
        .equal_to(b.key)
        .window(SLIDING)
        .apply(Both(), b.type)
    ),
}
"""No order is left after them."""
STAGES = {**ORDERED, **FIRST, **MIXING}


@dataclass(frozen=True)
class Program:
    times: tuple[int, ...]
    keys: tuple[int, ...]
    stages: tuple[str, ...]
    is_late: bool
    lateness: int
    is_typed: bool
    is_durable: bool
    """Whether the source writes a log of its own."""
    sink: str
    step: int

    @property
    def records(self) -> list[Record]:
        return [
            (self.keys[number % len(self.keys)], number, time)
            for number, time in enumerate(self.times)
        ]


@st.composite
def programs(draw: st.DrawFn) -> Program:
    """Some stages, and records in a random order of time."""
    count_ = draw(st.integers(8, 40))
    drifts = draw(st.lists(st.integers(0, DISORDER), min_size=count_, max_size=count_))
    is_late = draw(st.booleans())
    stages: list[str] = [draw(st.sampled_from(sorted(FIRST)))] if is_late else []
    allowed = [*ORDERED] if is_late else [*ORDERED, *WINDOWS, *MIXING]
    for _ in range(draw(st.integers(0 if is_late else 1, 3))):
        stage = draw(st.sampled_from(allowed))
        stages.append(stage)
        if stage in MIXING:
            allowed = [*WINDOWS, *MIXING]
        if stages.count("interval join") + stages.count("union") + stages.count("window join") > 1:
            break
    return Program(
        times=tuple(3 * number + drift for number, drift in enumerate(drifts)),
        keys=tuple(draw(st.lists(st.integers(0, 6), min_size=1, max_size=5))),
        stages=tuple(stages),
        is_late=is_late,
        lateness=draw(st.sampled_from([0, 12])) if is_late else 0,
        is_typed=draw(st.booleans()),
        is_durable=draw(st.booleans()),
        sink=draw(st.sampled_from(["ledger", "files"])),
        step=draw(st.sampled_from([1, 3, 10])),
    )


# --- interruptions ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Setting:
    """How a job is started."""

    parallelism: int
    backend: str
    mode: str
    is_chained: bool = True

    @property
    def guarantee(self) -> str:
        return "AT_LEAST_ONCE" if self.mode == "at least once" else "EXACTLY_ONCE"

    def values(self, place: Path) -> dict[str, Any]:
        return {
            "pipeline.operator-chaining.enabled": self.is_chained,
            "state.backend.type": self.backend,
            "execution.checkpointing.unaligned.enabled": self.mode == "unaligned",
            "execution.checkpointing.mode": self.guarantee,
            "execution.checkpointing.interval": "10 ms",
            "execution.checkpointing.dir": str(place / "checkpoints"),
            "execution.checkpointing.savepoint-dir": str(place / "savepoints"),
            "execution.checkpointing.tolerable-failed-checkpoints": 10**6,
            "execution.checkpointing.externalized-checkpoint-retention": "RETAIN_ON_CANCELLATION",
            "restart-strategy.type": "fixed-delay",
            "restart-strategy.fixed-delay.attempts": 100,
            "restart-strategy.fixed-delay.delay": "1 ms",
            "tidegate.console.live-line": "off",
        }


GENTLE = ["rescale", "stop", "cancel", "failed stop"]
"""After these, no mode counts a record again."""
ROUGH = ["fail", "kill", "checkpoint", "failed drain"]


@dataclass(frozen=True)
class Interruption:
    flows: int
    """How much of the input may pass before it, in percent."""
    waits: bool
    """Until all of that is read."""
    kind: str
    after: Setting
    """With which the job continues, where it is started again; rescalings use its parallelism."""
    format: SavepointFormat


def settings(modes: list[str]) -> st.SearchStrategy[Setting]:
    backends = st.sampled_from(["hashmap", "rocksdb"])
    return st.builds(Setting, st.integers(1, 3), backends, st.sampled_from(modes), st.booleans())


@st.composite
def journeys(draw: st.DrawFn) -> tuple[Setting, list[Interruption]]:
    """How a job is started, and what happens to it."""
    is_rough = draw(st.booleans())
    started = settings(["aligned", "unaligned", *([] if is_rough else ["at least once"])])
    flows = sorted(draw(st.lists(st.integers(0, 95), min_size=1, max_size=4)))
    return draw(started), [
        Interruption(
            flow,
            waits=draw(st.booleans()),
            kind=draw(st.sampled_from(ROUGH + GENTLE if is_rough else GENTLE)),
            after=draw(started),
            format=draw(st.sampled_from(SavepointFormat)),
        )
        for flow in flows
    ]


class Run:
    """A program over all its interruptions."""

    def __init__(self, program: Program, place: Path) -> None:
        place.mkdir()
        (place / "file").write_text("in the way")
        self.program = program
        self.place = place
        self.name = uuid.uuid4().hex
        self.ledger = Ledger(self.name)
        self.tap = Tap(program.records)

    def start(self, setting: Setting, *, is_typed: bool, **more: Any) -> JobClient:
        program = self.program
        chosen = {
            **setting.values(self.place),
            "tidegate.step.max-records": program.step,
            **more,
        }
        self.setting = setting
        env = mini_environment(chosen, parallelism=setting.parallelism)
        distance = 1 if program.is_late else DISORDER + 1
        strategy = WatermarkStrategy.for_generator(lambda: EveryOther(distance))
        strategy = strategy.with_timestamp_assigner(lambda value, before: value[2])
        b = Building(
            RECORD if is_typed else None,
            0 if is_typed else key_of,
            program.lateness,
        )
        source = self.tap.durable() if program.is_durable else self.tap
        stream = env.from_source(source).set_parallelism(1).map(tupled, b.type).set_parallelism(1)
        stream = stream.assign_timestamps_and_watermarks(strategy).set_parallelism(1)
        for stage in program.stages:
            stream = STAGES[stage](b, stream)
        results = stream.map(Troubled(self.name), b.type)
        texts = [each.map(str, Types.STRING()) for each in (results, *b.late)]
        self._sink(texts[0].union(*texts[1:]))
        return env.execute_async("interrupted")

    def _sink(self, stream: DataStream) -> None:
        if self.program.sink == "ledger":
            stream.add_sink(Transfers(self.name))
        else:
            buckets = BucketAssigner.by(lambda line: line[1])
            stream.sink_to(FileSink(str(self.place / "results"), Encoder(), buckets=buckets))

    def results(self) -> Counter[str]:
        """What the sink shows."""
        if self.program.sink == "ledger":
            return Counter(line for lines in self.ledger.committed.values() for line in lines)
        files = (self.place / "results").rglob("part-*")
        return Counter(line for file in files for line in file.read_text().splitlines())

    def travel(self, first: Setting, plan: list[Interruption]) -> Counter[str]:
        is_typed = self.program.is_typed
        job = self.start(first, is_typed=is_typed)
        for each in plan:
            limit = len(self.program.times) * each.flows // 100
            self.tap.let(limit)
            if each.waits:
                self._await(job, lambda limit=limit: self.tap.reached() >= limit)
            self._await(job, lambda: True)
            path = self._interrupt(job, each)
            if path is not None:
                after = each.after
                if each.kind == "checkpoint" and self.setting.mode == "unaligned":
                    # Records on their way are not dealt out again.
                    after = replace(self.setting, backend=after.backend, mode=after.mode)
                more = {"execution.state-recovery.path": path}
                job = self.start(after, is_typed=is_typed, **more)
        return self.finish(job)

    def finish(self, job: JobClient) -> Counter[str]:
        self.tap.open()
        job.wait(PATIENCE)
        TROUBLES.discard(self.name)
        assert not (self.place / "checkpoints" / str(job.get_job_id())).exists()
        return self.results()

    def _await(self, job: JobClient, condition: Callable[[], bool]) -> None:
        def holds() -> bool:
            status = job.get_job_status().result()
            if status is JobStatus.FAILED:
                job.wait()
            return status is JobStatus.RUNNING and condition()

        wait_until(holds)

    def _interrupt(self, job: JobClient, each: Interruption) -> str | None:
        """Returns from where the job continues if it has ended."""
        match each.kind:
            case "fail":
                TROUBLES.add(self.name)
            case "kill":
                job._job._master._cluster.kill(SlotIndex(0))
            case "rescale":
                parallelism = each.after.parallelism
                if self._answer(lambda: job.rescale(parallelism)) is not None:
                    self.setting = replace(self.setting, parallelism=parallelism)
            case "failed stop" | "failed drain":
                bad = str(self.place / "file")
                self._answer(lambda: job.stop_with_savepoint(each.kind != "failed stop", bad))
            case "checkpoint":
                path = self._answer(job.trigger_checkpoint)
                if path is None:
                    return None
                job.cancel_and_wait()
                return str(Path(path).parent)
            case "stop":
                path = self._answer(lambda: job.stop_with_savepoint(False, None, each.format))
                if path is not None:
                    job.wait(PATIENCE)
                return path
            case "cancel":
                path = self._answer(lambda: job.cancel_with_savepoint(None, each.format))
                if path is not None:
                    job.cancel_and_wait()
                return path
        return None

    @staticmethod
    def _answer(ask: Callable[[], Any]) -> str | None:
        """The path that a job answers with; None if it restarts, or cannot write there."""
        try:
            return ask().result(PATIENCE)
        except (NotNow, SavepointFailed) as refusal:
            note(f"refused: {refusal}")
            return None
