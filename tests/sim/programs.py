"""What the simulated jobs do: read streams, count by key, set timers, and write with transactions.

    source ──▶ Remembers ──key_by──▶ Counts ──▶ sink       the first pipeline
    source ──▶ Remembers ──▶ sink                          the second one, if there is one

A record is (stream, position). Of every record the sink gets (stream, position, key, its number
among those of the key), and of every timer ("timer", key, its number).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from tests.programs import apply, graph_of, keyed, mapped, read
from tests.sim import clockwork
from tests.sim.clockwork import EPOCH, Wrong
from tidegate.connectors.sink import Committer, CommittingWriter, SupportsCommitter
from tidegate.connectors.source import (
    InputStatus,
    Poll,
    ReaderContext,
    Source,
    SourceReader,
    SplitEnumerator,
)
from tidegate.graph.job_graph import JobGraph
from tidegate.operators.checkpointed import CheckpointedFunction
from tidegate.operators.endpoints.operators import SinkOperator
from tidegate.operators.endpoints.two_phase_commit import (
    TwoPhaseCommitOperator,
    TwoPhaseCommitSinkFunction,
)
from tidegate.operators.functions import KeyedProcessFunction, MapFunction
from tidegate.operators.keyed import KeyedProcessOperator
from tidegate.state.descriptors import ListStateDescriptor, ValueStateDescriptor
from tidegate.state.keys.selection import select_key
from tidegate.stream.batch import Batch

if TYPE_CHECKING:
    from tests.sim.world import World

TIMER_SECONDS = 0.5
LAST_WORDS_SECONDS = 4.0
"""Streams end so long after their last record was read: until then all timers are due."""


def world() -> World:
    return clockwork.SIMULATION  # type: ignore[no-any-return]


@dataclass(frozen=True)
class Program:
    """Drawn from a seed; the same for every driver of the job."""

    streams: tuple[tuple[int, ...], ...]
    """The length of each stream, by pipeline."""
    sink: str
    rate: float
    keys: int
    discovers: bool

    def graph(self, width: int) -> JobGraph:
        sinks = []
        for number in range(len(self.streams)):
            source = read(Streams(self, number), uid=f"source {number}")
            stream = mapped(Remembers(number), source, uid=f"remembers {number}")
            if number == 0:
                by_key = keyed(self.key_of, stream)
                counts = KeyedProcessOperator(Counts(self), [select_key(self.key_of, None)])
                stream = apply(counts, by_key, uid=f"counts {number}")
            sink = SINKS[self.sink](number)
            sinks.append(apply(sink, stream, is_sink=True, uid=f"sink {number}"))
        return graph_of(*sinks, parallelism=width, max_parallelism=8)

    def key_of(self, record: tuple[int, int]) -> int:
        return (record[0] * 7 + record[1]) % self.keys

    def available_at(self, position: int) -> float:
        return position / self.rate

    def sets_timer(self, record: tuple[int, int]) -> bool:
        return record[1] % 3 == 0

    def expected(self, pipeline: int, limits: Sequence[int] | None = None) -> Counter[Any]:
        """What is visible in the end, if so much of each stream is read."""
        limits = self.streams[pipeline] if limits is None else limits
        records = [(s, n) for s, limit in enumerate(limits) for n in range(limit)]
        return Counter(records)


# --- sources ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Split:
    stream: int
    position: int = 0


class Streams(Source):
    def __init__(self, program: Program, pipeline: int) -> None:
        self._program, self._pipeline = program, pipeline

    def create_enumerator(self) -> SplitEnumerator:
        return Discovery(self._program, len(self._program.streams[self._pipeline]))

    def create_reader(self, context: ReaderContext) -> SourceReader:
        return Reader(self._program, self._pipeline)


class Discovery(SplitEnumerator):
    """Streams appear one after the other, if the program is one that discovers."""

    def __init__(self, program: Program, count: int) -> None:
        self._program, self._count, self._given = program, count, 0

    def next_splits(self, parallelism: int) -> dict[int, list[Any]]:
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
    def __init__(self, program: Program, pipeline: int) -> None:
        self._program = program
        self._lengths = program.streams[pipeline]
        self._splits: dict[int, Split] = {}
        self._no_more = False
        self._read_at: dict[int, float] = {}

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
        return world().sim.now > read_at + LAST_WORDS_SECONDS

    def poll(self, max_records: int) -> Poll:
        records: list[Any] = []
        for stream, split in list(self._splits.items()):
            stop = min(self._limit(split), split.position + max_records - len(records))
            stop = max(stop, split.position)
            records += [(stream, place) for place in range(split.position, stop)]
            self._splits[stream] = replace(split, position=stop)
            if self._is_through(self._splits[stream]):
                del self._splits[stream]
        status = InputStatus.NOTHING_AVAILABLE
        if not self._splits and self._no_more:
            status = InputStatus.END_OF_INPUT
        elif self.is_available():
            status = InputStatus.MORE_AVAILABLE
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


# --- functions --------------------------------------------------------------------------------


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
        world().user_code(self._pipeline, value)
        return value

    def snapshot_state(self, context: Any) -> None:
        self.all.update(self.own.get())


class Counts(KeyedProcessFunction):
    def __init__(self, program: Program) -> None:
        self._program = program

    def open(self, runtime_context: Any) -> None:
        self._seen = runtime_context.get_state(ValueStateDescriptor("seen"))
        self._fired = runtime_context.get_state(ValueStateDescriptor("fired"))

    def process_element(self, value: Any, ctx: Any) -> Any:
        count = (self._seen.value() or 0) + 1
        self._seen.update(count)
        if self._program.sets_timer(value):
            seconds = EPOCH + self._program.available_at(value[1]) + TIMER_SECONDS
            ctx.timer_service().register_processing_time_timer(int(seconds * 1000) + value[0])
        yield (*value, ctx.get_current_key(), count)

    def on_timer(self, timestamp: int, ctx: Any) -> Any:
        count = (self._fired.value() or 0) + 1
        self._fired.update(count)
        yield "timer", ctx.get_current_key(), count


# --- the outside system -----------------------------------------------------------------------


@dataclass
class Bank:
    """Where one pipeline writes: prepared transactions outlive whoever prepared them."""

    pipeline: int
    begun: int = 0
    open: dict[str, list[Any]] = field(default_factory=dict)
    owners: dict[str, Any] = field(default_factory=dict)
    prepared: dict[str, list[Any]] = field(default_factory=dict)
    committed: dict[str, list[Any]] = field(default_factory=dict)
    visible: Counter[Any] = field(default_factory=Counter)

    def begin(self) -> str:
        with self._called("begin"):
            self.begun += 1
            transaction = f"t{self.pipeline}.{self.begun}"
            self.open[transaction] = []
            self.owners[transaction] = world().sim.current
        return transaction

    def write(self, transaction: str, records: Sequence[Any]) -> None:
        with self._called("write"):
            if transaction not in self.open:
                raise RuntimeError(f"{transaction} is gone")
            self.open[transaction] += records

    def prepare(self, transaction: str) -> None:
        with self._called("prepare"):
            self.prepared[transaction] = self.open.pop(transaction)

    def commit(self, transaction: str) -> None:
        with self._called("commit"):
            if transaction in self.committed:
                return
            if transaction not in self.prepared:
                raise Wrong(f"{transaction} is to be committed but was aborted")
            records = self.prepared.pop(transaction)
            self.committed[transaction] = records
            world().commits(self, transaction, records)
            self.visible.update(records)

    def abort(self, transaction: str) -> None:
        with self._called("abort"):
            self.open.pop(transaction, None)
            self.prepared.pop(transaction, None)

    def lost(self, process: Any) -> None:
        """With a process end the transactions that it had open."""
        for transaction in [t for t in self.open if self.owners[t] is process]:
            del self.open[transaction]

    def _called(self, what: str) -> Any:
        failure = RuntimeError(f"the bank does not answer to {what}")
        return world().outside(f"bank {self.pipeline} {what}", "bank", failure, acts=True)


def bank(pipeline: int) -> Bank:
    return world().banks[pipeline]


class Transfers(TwoPhaseCommitSinkFunction):
    """A sink function of transactions."""

    def __init__(self, pipeline: int) -> None:
        self._pipeline = pipeline

    def begin_transaction(self) -> str:
        return bank(self._pipeline).begin()

    def invoke(self, transaction: str, value: Any, context: Any) -> None:
        bank(self._pipeline).write(transaction, [value])

    def pre_commit(self, transaction: str) -> None:
        bank(self._pipeline).prepare(transaction)

    def commit(self, transaction: str) -> None:
        bank(self._pipeline).commit(transaction)

    def abort(self, transaction: str) -> None:
        bank(self._pipeline).abort(transaction)


class Account(SupportsCommitter):
    """A sink whose writers prepare, and whose committers commit."""

    def __init__(self, pipeline: int) -> None:
        self._pipeline = pipeline

    def create_writer(self, context: Any) -> CommittingWriter:
        return Clerk(bank(self._pipeline), context)

    def create_committer(self, context: Any) -> Committer:
        return Cashier(bank(self._pipeline))


class Clerk(CommittingWriter):
    def __init__(self, bank: Bank, context: Any) -> None:
        self._bank = bank
        for lost in sorted(bank.prepared.keys() - set(context.recovered)):
            context.permit.require()
            bank.abort(lost)
        self._transaction = bank.begin()

    def write(self, batch: Batch) -> None:
        self._bank.write(self._transaction, batch.records)

    def prepare_commit(self) -> list[str]:
        prepared = self._transaction
        self._bank.prepare(prepared)
        self._transaction = self._bank.begin()
        return [prepared]


class Cashier(Committer):
    def __init__(self, bank: Bank) -> None:
        self._bank = bank

    def commit(self, committables: Sequence[str]) -> None:
        for each in committables:
            self._bank.commit(each)


SINKS: Mapping[str, Any] = {
    "function": lambda pipeline: TwoPhaseCommitOperator(Transfers(pipeline)),
    "committer": lambda pipeline: SinkOperator(Account(pipeline)),
}
