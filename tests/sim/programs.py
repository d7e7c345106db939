"""The simulated jobs: they read streams, count by key, set timers, and write transactionally.

    source ──▶ Remembers ──key_by──▶ Counts ──▶ sink                         the first pipeline
    source ──▶ Remembers ──key_by──▶ Holds ──▶ Bundles ──key_by──▶ Counts …   one that holds back
    source ──▶ Remembers ──▶ sink                         the second one, if there is one

A record is (stream, position). For every record the sink gets (stream, position, key, its number
among those of the key), and for every timer ("timer", key, its number).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tests.programs import apply, graph_of, keyed, mapped, read
from tests.sim.bank import Account, Transfers
from tests.sim.clockwork import EPOCH, Wrong, world
from tests.sim.files import file_sink
from tests.sim.kafka_clients import kafka_sink
from tests.sim.postgres import TextSinkOperator, postgres_sink
from tests.sim.tides import LAST_WORDS_SECONDS as SHORT_WORDS_SECONDS
from tests.sim.tides import Calendar, batch_of, build, certain
from tests.sim.tides import expected as expected_in_time
from tidegate.connectors.source import (
    InputStatus,
    Poll,
    ReaderContext,
    Source,
    SourceReader,
    SplitEnumerator,
)
from tidegate.graph.job_graph import JobGraph
from tidegate.operators.base import Operator, OperatorContext, OperatorSnapshot, Output
from tidegate.operators.checkpointed import CheckpointedFunction
from tidegate.operators.endpoints.operators import SinkOperator
from tidegate.operators.endpoints.two_phase_commit import TwoPhaseCommitOperator
from tidegate.operators.functions import KeyedProcessFunction, MapFunction
from tidegate.operators.keyed import KeyedProcessOperator
from tidegate.state.descriptors import ListStateDescriptor, ValueStateDescriptor
from tidegate.state.keys.selection import select_key
from tidegate.stream.batch import Batch
from tidegate.stream.elements import Barrier

TIMER_SECONDS = 0.5
HOLDING_SECONDS = 0.5
"""How long a record that could be emitted waits for a step; a barrier may come first."""
LISTING = "a source lists its splits"
LAST_WORDS_SECONDS = 4.0
"""Streams end this long after their last record, so that all timers are due by then."""

SINKS: Mapping[str, Callable[[int], Operator]] = {
    "function": lambda pipeline: TwoPhaseCommitOperator(Transfers(pipeline)),
    "committer": lambda pipeline: SinkOperator(Account(pipeline)),
    "files": lambda pipeline: SinkOperator(file_sink(pipeline)),
    "kafka": lambda pipeline: SinkOperator(kafka_sink(pipeline)),
    "postgres": lambda pipeline: TextSinkOperator(postgres_sink(pipeline)),
}


@dataclass(frozen=True)
class Program:
    """Drawn from a seed; the same for every driver of the job."""

    streams: tuple[tuple[int, ...], ...]
    """The length of each stream, by pipeline."""
    sink: str
    rate: float
    keys: int
    discovers: bool
    holds: bool = False
    time: str = ""
    """What the first pipeline does in event time, if anything."""
    typed: bool = False
    """Whether its records and state are columnar."""
    idles: bool = False
    """Whether its streams are sometimes idle."""

    def graph(self, width: int) -> JobGraph:
        sinks = []
        for number in range(len(self.streams)):
            if self.is_timed(number):
                source_of_tides, remembers = Streams(self, number), Remembers(number)
                sinks.append(build(self, source_of_tides, remembers, SINKS[self.sink](number)))
                continue
            source = read(Streams(self, number), uid=f"source {number}")
            stream = mapped(Remembers(number), source, uid=f"remembers {number}")
            if number == 0:
                if self.holds:
                    stream = apply(Holds(), keyed(self.key_of, stream), uid="holds")
                    stream = apply(Bundles(), stream, uid="bundles")
                by_key = keyed(self.key_of, stream)
                counts = KeyedProcessOperator(Counts(self), [select_key(self.key_of, None)])
                stream = apply(counts, by_key, uid="counts")
            sink = SINKS[self.sink](number)
            sinks.append(apply(sink, stream, is_sink=True, uid=f"sink {number}"))
        return graph_of(*sinks, parallelism=width, max_parallelism=8)

    @property
    def has_server(self) -> bool:
        """Whether a server behind the sink has transactions open that nobody may end any more."""
        return self.sink in ("kafka", "postgres")

    def key_of(self, record: tuple[int, int]) -> int:
        return (record[0] * 7 + record[1]) % self.keys

    def available_at(self, position: int) -> float:
        return position / self.rate

    def sets_timer(self, record: tuple[int, int]) -> bool:
        return record[1] % 3 == 0

    def is_timed(self, pipeline: int) -> bool:
        return self.time != "" and pipeline == 0

    def certain(self, pipeline: int, limits: Sequence[int]) -> list[Any]:
        """What a pipeline has emitted when this much of each stream is processed."""
        if self.is_timed(pipeline):
            return certain(self, limits)
        return [] if self.held_by(pipeline) else list(self.expected(pipeline, limits))

    def held_by(self, pipeline: int) -> bool:
        """Whether records of a pipeline may be in its state rather than in its sink."""
        return self.holds and pipeline == 0

    def expected(self, pipeline: int, limits: Sequence[int] | None = None) -> Counter[Any]:
        """What is visible in the end, if this much of each stream is read."""
        limits = self.streams[pipeline] if limits is None else limits
        if self.is_timed(pipeline):
            return expected_in_time(self, limits)
        return Counter((s, n) for s, limit in enumerate(limits) for n in range(limit))


# --- sources ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Split:
    stream: int
    position: int = 0


class Streams(Source):
    def __init__(self, program: Program, pipeline: int) -> None:
        self._program, self._pipeline = program, pipeline

    def create_enumerator(self) -> SplitEnumerator:
        return Discovery(self._program, self._pipeline)

    def create_reader(self, context: ReaderContext) -> SourceReader:
        world().checks.opens_reader(self._pipeline, context.subtask)
        if self._program.is_timed(self._pipeline):
            return TideReader(self._program, context)
        return Reader(self._program, self._pipeline)


class Discovery(SplitEnumerator):
    """Streams appear one after the other, if the program discovers splits."""

    def __init__(self, program: Program, pipeline: int) -> None:
        self._program, self._pipeline, self._given = program, pipeline, 0
        self._count = len(program.streams[pipeline])

    def next_splits(self, parallelism: int) -> dict[int, list[Any]]:
        world().moment(LISTING)
        if self._given:  # what fails before is a mistake of the user's
            world().user_code(self._pipeline)
        known = self._count
        if self._program.discovers:
            known = min(known, 1 + int(world().sim.now))
        new = range(self._given, known)
        self._given = max(known, self._given)
        return {
            s % parallelism: [Split(n) for n in new if n % parallelism == s % parallelism]
            for s in new
        }

    def is_exhausted(self) -> bool:
        return self._given >= self._count

    def snapshot(self) -> Any:
        return self._given

    def restore(self, state: Any) -> None:
        self._given = state


class Reader(SourceReader):
    last_words_seconds = LAST_WORDS_SECONDS

    def __init__(self, program: Program, pipeline: int) -> None:
        self._program = program
        self._lengths = program.streams[pipeline]
        self._splits: dict[int, Split] = {}
        self._no_more = False
        self._read_at: dict[int, float] = {}
        self._emitted: set[int] = set()

    def add_splits(self, splits: Sequence[Split]) -> None:
        for split in splits:
            if split.stream in self._splits:
                raise Wrong(f"stream {split.stream} is read twice by one reader")
            self._splits[split.stream] = split

    def no_more_splits(self) -> None:
        self._no_more = True

    def _limit(self, split: Split) -> int:
        length = self._lengths[split.stream]
        return min(length, 1 + int(world().sim.now * self._program.rate))

    def _is_through(self, split: Split) -> bool:
        if split.position < self._lengths[split.stream]:
            return False
        read_at = self._read_at.setdefault(split.stream, world().sim.now)
        return world().sim.now > read_at + self.last_words_seconds

    def _ends(self, split: Split) -> bool:
        """Held records are emitted, and set their timers, in a step before the last one."""
        if not self._is_through(split):
            return False
        was_held = self._program.holds and split.stream not in self._emitted
        self._emitted.add(split.stream)
        return not was_held

    def poll(self, max_records: int) -> Poll:
        records: list[Any] = []
        emitted = len(self._emitted)
        for stream, split in list(self._splits.items()):
            stop = min(self._limit(split), split.position + max_records - len(records))
            stop = max(stop, split.position)
            records += [(stream, place) for place in range(split.position, stop)]
            self._splits[stream] = replace(split, position=stop)
            if self._ends(self._splits[stream]):
                del self._splits[stream]
        status = InputStatus.NOTHING_AVAILABLE
        if not self._splits and self._no_more:
            status = InputStatus.END_OF_INPUT
            world().moment("an input ends")
        elif self.is_available() and len(self._emitted) == emitted:
            status = InputStatus.MORE_AVAILABLE
        if records:
            world().checks.reads()
        return Poll(Batch.of_records(records) if records else None, status)

    def is_available(self) -> bool:
        if not self._splits:
            return self._no_more
        return any(
            split.position < self._limit(split) or self._is_through(split)
            for split in self._splits.values()
        )

    def snapshot(self) -> list[Split]:
        return list(self._splits.values())


class TideReader(Reader):
    """Reads one stream at a time, as far as event time allows."""

    reads_all_at_once = True
    last_words_seconds = SHORT_WORDS_SECONDS

    def __init__(self, program: Program, context: ReaderContext) -> None:
        super().__init__(program, 0)
        self._context, self._calendar = context, Calendar(program, context)

    def split_key(self, split: Split) -> int:
        return split.stream

    def add_splits(self, splits: Sequence[Split]) -> None:
        super().add_splits(splits)
        for split in splits:
            self._calendar.begins(split.stream, split.position)

    def _is_through(self, split: Split) -> bool:
        return super()._is_through(split) and self._calendar.may_end(split.stream)

    def _stop(self, split: Split, limit: int, *, is_next_step: bool = False) -> int:
        stop, limit = split.position, min(limit, self._limit(split))
        may_read = self._calendar.may_read
        while stop < limit and may_read(split.stream, stop, is_next_step=is_next_step):
            stop += 1
        return stop

    def poll(self, max_records: int) -> Poll:
        ended = tuple(s for s, split in self._splits.items() if self._is_through(split))
        for stream in ended:
            del self._splits[stream]
        for stream, split in list(self._splits.items()):
            stop = self._stop(split, split.position + max_records)
            if stop > split.position:
                world().checks.reads()
                self._calendar.reads(stream, stop)
                del self._splits[stream]  # the others come first next time
                self._splits[stream] = replace(split, position=stop)
                positions = range(split.position, stop)
                batch = batch_of(self._program, stream, positions, self._context)
                return Poll(batch, InputStatus.MORE_AVAILABLE, stream, ended)
        if self._splits or not self._no_more:
            return Poll(None, InputStatus.NOTHING_AVAILABLE, ended=ended)
        world().moment("an input ends")
        return Poll(None, InputStatus.END_OF_INPUT, ended=ended)

    def is_available(self) -> bool:
        if not self._splits:
            return self._no_more
        return any(
            self._is_through(split)
            or self._stop(split, split.position + 1, is_next_step=True) > split.position
            for split in self._splits.values()
        )


# --- operators --------------------------------------------------------------------------------


class Remembers(MapFunction, CheckpointedFunction):
    """Every element was added by one of the first subtasks, and belongs to one subtask since."""

    def __init__(self, pipeline: int) -> None:
        self._pipeline = pipeline

    def initialize_state(self, context: Any) -> None:
        store = context.get_operator_state_store()
        self.own = store.get_list_state(ListStateDescriptor("own"))
        self.all = store.get_union_list_state(ListStateDescriptor("all"))
        self.is_restored = context.is_restored()

    def open(self, runtime_context: Any) -> None:
        if self.is_restored:
            found = sorted(self.all.get())
            width = found[0][1] if found else 0
            if not found or found != [(index, width) for index in range(width)]:
                raise Wrong(f"a union list was restored as {found}")
        else:
            width = runtime_context.get_number_of_parallel_subtasks()
            self.own.update([(runtime_context.get_index_of_this_subtask(), width)])

    def map(self, value: Any) -> Any:
        world().user_code(self._pipeline)
        return value

    def snapshot_state(self, context: Any) -> None:
        self.all.update(self.own.get())


class Holds(Operator):
    """Emits records some time after they came, as asynchronous requests do; meanwhile they are
    state."""

    def keeps_state(self) -> bool:
        return True

    def open(self, context: OperatorContext, output: Output) -> None:
        super().open(context, output)
        self._clock = context.clock
        self._state = context.operator_state.get_list_state(ListStateDescriptor("held"))
        self._held: list[tuple[float, Any]] = [(0.0, record) for record in self._state.get()]

    def process(self, batch: Batch, input_index: int = 0) -> None:
        now = self._clock.time()
        self._held += [(now + 0.2 * (record[1] % 4), record) for record in batch.records]

    def next_timer(self) -> float | None:
        return self._held[0][0] + HOLDING_SECONDS if self._held else None

    def fire_timers(self, now: float) -> None:
        self.flush()

    def flush(self) -> None:
        self._emit(self._clock.time())

    def _emit(self, until: float) -> None:
        due = 0
        while due < len(self._held) and self._held[due][0] <= until:
            due += 1
        ready, self._held = self._held[:due], self._held[due:]
        if ready:
            self.output.emit(Batch.of_records([record for _, record in ready]))

    def snapshot(self, barrier: Barrier) -> OperatorSnapshot | None:
        self._state.update([record for _, record in self._held])
        return None

    def is_drained(self) -> bool:
        return not self._held

    def drain(self) -> None:
        self._emit(float("inf"))


class Bundles(Operator):
    """Holds records back until it is flushed."""

    def open(self, context: OperatorContext, output: Output) -> None:
        super().open(context, output)
        self._bundle: list[Any] = []

    def process(self, batch: Batch, input_index: int = 0) -> None:
        self._bundle += batch.records

    def flush(self) -> None:
        if self._bundle:
            bundle, self._bundle = self._bundle, []
            self.output.emit(Batch.of_records(bundle))

    def finish(self, input_index: int = 0) -> None:
        self.flush()


class Counts(KeyedProcessFunction):
    def __init__(self, program: Program) -> None:
        self._program = program

    def open(self, runtime_context: Any) -> None:
        self._seen = runtime_context.get_state(ValueStateDescriptor("seen"))
        self._fired = runtime_context.get_state(ValueStateDescriptor("fired"))
        self._last = runtime_context.get_state(ValueStateDescriptor("last"))

    def process_element(self, value: Any, ctx: Any) -> Any:
        count = (self._seen.value() or 0) + 1
        self._seen.update(count)
        self._check_order(*value)
        if self._program.sets_timer(value):
            seconds = EPOCH + self._program.available_at(value[1]) + TIMER_SECONDS
            ctx.timer_service().register_processing_time_timer(int(seconds * 1000) + value[0])
        yield (*value, ctx.get_current_key(), count)

    def _check_order(self, stream: int, position: int) -> None:
        """Order is not kept across rescaling, when held records are redistributed."""
        if self._program.holds or world().plan.mode != "EXACTLY_ONCE":
            return
        last = dict(self._last.value() or ())
        if last.get(stream, -1) >= position:
            raise Wrong(f"{position} of stream {stream} comes after {last[stream]}")
        last[stream] = position
        self._last.update(tuple(last.items()))

    def on_timer(self, timestamp: int, ctx: Any) -> Any:
        count = (self._fired.value() or 0) + 1
        self._fired.update(count)
        yield "timer", ctx.get_current_key(), count
