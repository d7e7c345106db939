"""Random programs of remembering functions, and their interruptions."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from tests.programs import wait_until
from tests.properties.ledgers import Ledger, Transfers
from tests.properties.remembering import (
    LATEST,
    RULE_COUNT,
    RULES,
    SIGHTED,
    Keyed,
    KeyedRuled,
    KeyedTwice,
    Ruled,
    Takeovers,
    Tally,
    takeovers_of,
)
from tests.taps import Tap
from tidegate.common.job_client import JobClient
from tidegate.core.clock import ManualClock
from tidegate.datastream import DataStream
from tidegate.datastream.connectors.file_system import Encoder, FileSink
from tidegate.protocol.job_status import JobStatus
from tidegate.savepoint import StateReader
from tidegate.testing.environments import mini_environment
from tidegate.types.typeinfo import Types

KEYS: dict[str, Callable[[int], Any]] = {
    "number": lambda value: value % 11,
    "text": lambda value: f"key {value % 11}",
    "pair": lambda value: (value % 3, f"key {value % 4}"),
}
PARTITIONINGS: dict[str, Callable[[DataStream], DataStream]] = {
    "none": lambda stream: stream,
    "rebalance": lambda stream: stream.rebalance(),
    "rescale": lambda stream: stream.rescale(),
    "shuffle": lambda stream: stream.shuffle(),
    "global": lambda stream: stream.global_(),
    "custom": lambda stream: stream.partition_custom(lambda key, count: key % count, abs),
}


# --- programs -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Node:
    """An operator that reads earlier sources and operators: each by number, and how."""

    kind: str
    inputs: tuple[tuple[int, str], ...]
    parallelism: int | None


@dataclass(frozen=True)
class Program:
    """A plan from which the same program can be built repeatedly."""

    sources: tuple[tuple[int, ...], ...]
    """The number of records of each stream of each source."""
    ending: tuple[bool, ...]
    """Which sources end during the run; the first never does, and the last has the rules."""
    nodes: tuple[Node, ...]
    key: str
    sink: str
    is_typed: bool
    is_chained: bool
    max_parallelism: int | None
    step: int


@st.composite
def programs(draw: st.DrawFn) -> Program:
    """Sources with several streams, and operators that read and join them in any arrangement."""
    streams = st.lists(st.integers(0, 25), min_size=1, max_size=3).map(tuple)
    sources = draw(st.lists(streams, min_size=1, max_size=2))
    nodes: list[Node] = []
    kinds = ["keyed", "connected", "tally", "ruled", "keyed ruled", "united"]
    for kind in draw(st.lists(st.sampled_from(kinds), min_size=2, max_size=4)):
        before = st.integers(0, len(sources) + len(nodes) - 1)
        count = 2 if kind in ("connected", "united") else 1
        inputs = tuple(
            (draw(before), draw(st.sampled_from([*PARTITIONINGS]))) for _ in range(count)
        )
        nodes.append(Node(kind, inputs, draw(st.none() | st.none() | st.integers(1, 3))))
    return Program(
        tuple(sources),
        (False, *(draw(st.booleans()) for _ in sources)),
        tuple(nodes),
        key=draw(st.sampled_from([*KEYS])),
        sink=draw(st.sampled_from(["files", "ledger"])),
        is_typed=draw(st.booleans()),
        is_chained=draw(st.booleans()),
        max_parallelism=draw(st.sampled_from([None, 5])),
        step=draw(st.sampled_from([1, 3, 10])),
    )


@dataclass
class Run:
    """A program over all its legs, whose taps, time and sink the test controls."""

    program: Program
    place: Path
    name: str = field(default_factory=lambda: uuid.uuid4().hex)

    def __post_init__(self) -> None:
        self.clock = ManualClock()
        self.ledger = Ledger(self.name)
        records: list[list[Any]] = [
            [
                [number * 10**6 + stream * 10**3 + i for i in range(count)]
                for stream, count in enumerate(streams)
            ]
            for number, streams in enumerate(self.program.sources)
        ]
        if self.has_rules:
            rules = [(number, f"rule {number}") for number in range(RULE_COUNT - 1)]
            records.append([rules[::2], rules[1::2]])
        self.counts = [[len(stream) for stream in streams] for streams in records]
        """How many records each stream of each tap has."""
        self.taps = [
            # Streams that must not end have a record after the last one that may pass.
            Tap(*streams) if is_ending else Tap(*([*stream, None] for stream in streams))
            for streams, is_ending in zip(records, self.ending, strict=True)
        ]

    @property
    def ending(self) -> list[bool]:
        """For every tap, whether it ends during the run."""
        sources = self.program.ending[: len(self.program.sources)]
        return [*sources, self.program.ending[-1]] if self.has_rules else [*sources]

    @property
    def has_rules(self) -> bool:
        return any("ruled" in node.kind for node in self.program.nodes)

    @property
    def takeovers(self) -> Takeovers:
        return takeovers_of(self.name)

    def start(self, parallelism: int, settings: dict[str, Any]) -> JobClient:
        """Build the program and let it run."""
        chosen = {
            "restart-strategy.type": "none",
            "tidegate.step.max-records": self.program.step,
            "tidegate.console.live-line": "off",
            "pipeline.operator-chaining.enabled": self.program.is_chained,
            **settings,
        }
        if self.program.max_parallelism is not None:
            chosen["pipeline.max-parallelism"] = self.program.max_parallelism
        env = mini_environment(chosen, parallelism=parallelism, clock=self.clock)
        type_info = Types.LONG() if self.program.is_typed else None
        sources = [
            env.from_source(tap, type_info=None).uid(f"source {number}")
            for number, tap in enumerate(self.taps)
        ]
        rules = sources.pop() if self.has_rules else None
        streams = [
            stream.map(int, type_info).uid(f"records {number}")
            for number, stream in enumerate(sources)
        ]
        # Ended streams have no state: operators read them next to a source that continues.
        streams[1:] = [
            stream.union(streams[0]) if is_ending else stream
            for stream, is_ending in zip(streams[1:], self.program.ending[1:], strict=False)
        ]
        told: list[DataStream] = []
        for number, node in enumerate(self.program.nodes):
            inputs = [PARTITIONINGS[how](streams[place]) for place, how in node.inputs]
            stream = self._applied(f"node {number}", node, inputs, rules)
            stream.uid(f"node {number}")
            if node.parallelism is not None:
                stream.set_parallelism(node.parallelism)
            streams.append(stream)
            if node.kind not in ("tally", "united"):
                told.append(stream.get_side_output(SIGHTED))
        results = [
            stream.map(str, Types.STRING()).uid(f"results {number}")
            for number, stream in enumerate(streams)
        ]
        self._sink(results[0].union(*results[1:], *told))
        return env.execute_async("interrupted")

    def _applied(self, name: str, node: Node, inputs: list[DataStream], rules: Any) -> DataStream:
        key = KEYS[self.program.key]
        is_typed = self.program.is_typed
        output = Types.LONG() if is_typed else None
        match node.kind:
            case "keyed":
                keyed = Keyed(name, self.name, typed=is_typed)
                return inputs[0].key_by(key).process(keyed, output)
            case "connected":
                both = inputs[0].connect(inputs[1]).key_by(key, key)
                return both.process(KeyedTwice(name, self.name, typed=is_typed), output)
            case "tally":
                return inputs[0].map(Tally(name, self.name), output)
            case "ruled":
                ruled = inputs[0].connect(rules.broadcast(RULES))
                return ruled.process(Ruled(name, self.name), output)
            case "keyed ruled":
                by_key = inputs[0].key_by(key).connect(rules.broadcast(RULES))
                return by_key.process(KeyedRuled(name, self.name), output)
        return inputs[0].union(inputs[1]).map(int, output)

    def _sink(self, stream: DataStream) -> None:
        if self.program.sink == "files":
            stream.sink_to(FileSink(str(self.place / "results"), Encoder())).uid("sink")
        else:
            stream.add_sink(Transfers(self.name)).uid("sink")

    # --- progress -------------------------------------------------------------------------------

    def let(self, percent: int) -> None:
        """Let this much of every stream pass; those that end are ahead of the others."""
        for tap, counts, is_ending in zip(self.taps, self.counts, self.ending, strict=True):
            part = min(100, 2 * percent) if is_ending else percent
            for stream, count in enumerate(counts):
                tap.let(count * part // 100, stream)

    def wait_for(self, percent: int, job: JobClient) -> None:
        """Wait until the job runs and has read this much of what may pass."""
        wanted = sum(sum(tap.flow.limits) for tap in self.taps) * percent // 100

        def is_there() -> bool:
            status = job.get_job_status().result()
            if status is JobStatus.FAILED:
                job.wait()
            reached = sum(sum(tap.flow.reached) for tap in self.taps)
            return status is JobStatus.RUNNING and reached >= wanted

        wait_until(is_there)

    def is_through(self, savepoint: StateReader) -> bool:
        """Whether a savepoint is after all records, and no timer is left to fire."""
        reached = {
            (position.uid, position.split.stream): position.split.position
            for position in savepoint.source_positions()
        }
        if reached != self._due_positions():
            return False
        return not any(
            timestamp <= LATEST
            for operator in savepoint.operators()
            for state in operator.states
            if state.name == "_timers/processing-time"
            for _, timestamp in savepoint.entries(operator.label, state.name)
        )

    def _due_positions(self) -> dict[tuple[str, int], int]:
        """The positions of streams when everything has passed; ended ones have none."""
        return {
            (f"source {number}", stream): count
            for number, counts in enumerate(self.counts)
            if not self.ending[number]
            for stream, count in enumerate(counts)
        }

    def end(self) -> None:
        """Let all streams end."""
        for tap in self.taps:
            for stream in range(len(tap.streams)):
                tap.end(stream)

    def results(self) -> Counter[str]:
        """The contents of the sink."""
        if self.program.sink == "ledger":
            return Counter(line for lines in self.ledger.committed.values() for line in lines)
        files = sorted((self.place / "results").glob("part-*"))
        return Counter(line for file in files for line in file.read_text().splitlines())


def state_in(savepoint: StateReader) -> dict[tuple[str, str], Any]:
    """The whole state of the functions, over all subtasks."""
    found: dict[tuple[str, str], Any] = {}
    for operator in savepoint.operators():
        for state in operator.states:
            uid, name = operator.label, state.name
            if uid == "sink":
                continue
            if state.kind == "timers":
                held: Any = Counter(savepoint.entries(uid, name))
            elif state.is_keyed:
                entries = [(key, _sorted(value)) for key, value in savepoint.entries(uid, name)]
                held = dict(entries)
                assert len(held) == len(entries), f"a key of {uid} has two values of {name}"
            elif state.kind.startswith("broadcast"):
                held = _same_in_all(savepoint.elements(uid, name), operator.parallelism)
            else:
                held = Counter(element for _, element in savepoint.elements(uid, name))
            if held:
                found[uid, name] = held
    return found


def _same_in_all(elements: Iterable[tuple[int, Any]], parallelism: int) -> dict[Any, Any]:
    maps: list[dict[Any, Any]] = [{} for _ in range(parallelism)]
    for subtask, (key, value) in elements:
        maps[subtask][key] = value
    assert all(each == maps[0] for each in maps), maps
    return maps[0]


def _sorted(value: Any) -> Any:
    """Sort lists, whose order depends on the arrival of records."""
    if isinstance(value, dict):
        return {key: _sorted(each) for key, each in value.items()}
    return sorted(value) if isinstance(value, list) else value
