"""Random programs whose operators remember what they saw, and what their checkpoints must contain.

Every record is a unique number and passes all operators unchanged. The state of an operator
therefore follows from the positions of the sources: each record before them, once per path from its
source to the operator.
"""

from __future__ import annotations

import itertools
import pickle
import threading
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from tests.jobs import CHECKPOINTS, TOLERANT, Job
from tests.programs import apply, graph_of, read, wait_until
from tests.taps import Tap
from tidegate.checkpoint.checkpoint import Checkpoint
from tidegate.checkpoint.locate import open_checkpoint
from tidegate.checkpoint.metadata import CheckpointMetadata, OperatorRecord
from tidegate.graph.logical import Transformation, Upstream
from tidegate.graph.partitioning import ByKeyGroup, Global, Partitioning, Rebalance, Rescale
from tidegate.operators.checkpointed import CheckpointedFunction
from tidegate.operators.functions import MapFunction
from tidegate.operators.keyed import KeyedMapOperator
from tidegate.operators.stateless import MapOperator
from tidegate.state.descriptors import ListStateDescriptor, MapStateDescriptor
from tidegate.state.keys.key_groups import KeyGroupRange
from tidegate.state.keys.selection import select_key
from tidegate.state.memory.backend import HashMapBackend
from tidegate.state.snapshot.reader import StoredImage, read_segment

SEEN = MapStateDescriptor("seen")
TALLY = ListStateDescriptor("tally")
GROUPS = 128
_numbers = itertools.count()


class Faults:
    """How often functions were called in one run, and on which calls they fail, each once."""

    runs: dict[int, Faults] = {}  # noqa: RUF012 - shared with the slots, which run in this process

    def __init__(self, calls: set[tuple[str, int]]) -> None:
        self.run = next(_numbers)
        self.runs[self.run] = self
        self._calls = calls
        self._counts: Counter[str] = Counter()
        self._lock = threading.Lock()

    def called(self, name: str) -> None:
        with self._lock:
            self._counts[name] += 1
            if (name, self._counts[name]) in self._calls:
                raise RuntimeError(f"call {self._counts[name]} of {name}")


class _Remembering:
    def __init__(self, name: str) -> None:
        self.name = name
        self.run: int | None = None

    def called(self) -> None:
        if self.run is not None:
            Faults.runs[self.run].called(self.name)


class Seen(_Remembering, MapFunction):
    """Counts every record in the state of its key."""

    def open(self, runtime_context: Any) -> None:
        self.seen = runtime_context.get_map_state(SEEN)

    def map(self, value: int) -> int:
        self.called()
        self.seen.put(value, (self.seen.get(value) or 0) + 1)
        return value


class Tally(_Remembering, MapFunction, CheckpointedFunction):
    """Counts every record in operator state."""

    def initialize_state(self, context: Any) -> None:
        self.stored = context.get_operator_state_store().get_list_state(TALLY)
        self.tally = Counter(self.stored)

    def snapshot_state(self, context: Any) -> None:
        self.stored.update(list(self.tally.elements()))

    def map(self, value: int) -> int:
        self.called()
        self.tally[value] += 1
        return value


def key_of(value: int) -> int:
    return value % 5


# --- programs -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Node:
    """A source, or an operator that reads earlier nodes, by number."""

    kind: str
    inputs: tuple[tuple[int, Partitioning | None], ...] = ()
    parallelism: int | None = None
    streams: tuple[int, ...] = ()
    """For a source: the number of records of each stream."""


@dataclass(frozen=True)
class Program:
    """A plan from which the same program can be built repeatedly."""

    nodes: tuple[Node, ...]
    parallelism: int
    step: int
    is_chained: bool

    @property
    def operators(self) -> list[str]:
        return [f"node {i}" for i, node in enumerate(self.nodes) if node.kind != "source"]

    def ways(self, node: int) -> Counter[int]:
        """The number of paths to a node, by source."""
        if self.nodes[node].kind == "source":
            return Counter({node: 1})
        found: Counter[int] = Counter()
        for number, _ in self.nodes[node].inputs:
            found += self.ways(number)
        return found


@dataclass
class Running:
    """A running program, whose taps the test controls."""

    program: Program
    taps: dict[int, Tap]
    job: Job
    faults: Faults = field(default_factory=lambda: Faults(set()))

    @property
    def reads(self) -> int:
        return sum(tap.reads for tap in self.taps.values())

    def wait_until_saved(self, seconds: float = 30.0) -> CheckpointMetadata:
        """A checkpoint after everything that may pass."""
        limits = {number: list(tap.flow.limits) for number, tap in self.taps.items()}

        def saved() -> CheckpointMetadata | None:
            if self.job.master.result.done():
                self.job.result()
            point = self.job.master.checkpoints.retained.restore_point
            if point is None or point.metadata.job_id != self.job.master.job_id:
                return None
            there = {n: positions(point.metadata, n, tap) for n, tap in self.taps.items()}
            return point.metadata if there == limits else None

        return wait_until(saved, seconds)


def launched(
    program: Program,
    settings: dict[str, Any],
    *,
    taps: dict[int, Tap] | None = None,
    calls: set[tuple[str, int]] | None = None,
    parallelism: int | None = None,
    ends: bool = False,
) -> Running:
    """Build the program and start it.

    Args:
        program: what to build.
        settings: those of the job.
        taps: those of an earlier run, to continue with.
        calls: the calls of operators that fail.
        parallelism: that of all operators, instead of their own.
        ends: whether all streams of a source but the last one end. Ended subtasks have no state
            after a restore, so this is for runs without failures.
    """
    faults = Faults(calls or set())
    taps = taps or {
        number: _tap(number, node, ends)
        for number, node in enumerate(program.nodes)
        if node.kind == "source"
    }
    built: list[Transformation] = []
    for number, node in enumerate(program.nodes):
        built.append(_transformation(number, node, built, taps, faults, parallelism is not None))
    used = {number for node in program.nodes for number, _ in node.inputs}
    leaves = [each for number, each in enumerate(built) if number not in used]
    graph = graph_of(
        *leaves,
        parallelism=parallelism or program.parallelism,
        max_parallelism=GROUPS,
        chaining=program.is_chained,
    )
    steps = {"tidegate.step.max-records": program.step}
    job = Job(graph, {**CHECKPOINTS, **TOLERANT, **steps, **settings})
    return Running(program, taps, job, faults)


def _tap(number: int, node: Node, ends: bool) -> Tap:
    streams = [
        [number * 10**6 + stream * 10**3 + i for i in range(count)]
        for stream, count in enumerate(node.streams)
    ]
    for stream in streams[-1 if ends else 0 :]:
        stream.append(-1)  # this one never passes, so the stream does not end
    tap = Tap(*streams)
    for stream, count in enumerate(node.streams):
        tap.let(count, stream)
    return tap


def _transformation(
    number: int,
    node: Node,
    built: Sequence[Transformation],
    taps: dict[int, Tap],
    faults: Faults,
    is_rescaled: bool,
) -> Transformation:
    name = f"node {number}"
    settings = {"uid": name, "name": name, "parallelism": None if is_rescaled else node.parallelism}
    if node.kind == "source":
        return read(taps[number], **settings)
    if node.kind == "tally":
        tally = Tally(name)
        tally.run = faults.run
        inputs = [Upstream(built[source], partitioning) for source, partitioning in node.inputs]
        return apply(MapOperator(tally), *inputs, **settings)
    function = Seen(name)
    function.run = faults.run
    key = select_key(key_of)
    inputs = [
        Upstream(built[source], ByKeyGroup(key), input_index=i if node.kind == "connected" else 0)
        for i, (source, _) in enumerate(node.inputs)
    ]
    keys = [key] * (len(inputs) if node.kind == "connected" else 1)
    return apply(KeyedMapOperator(function, keys), *inputs, is_keyed=True, **settings)


@st.composite
def programs(draw: st.DrawFn) -> Program:
    """One to three sources, and operators that read and join them in any arrangement."""
    parallelisms = st.none() | st.integers(1, 3)
    nodes = [
        Node(
            "source",
            parallelism=draw(parallelisms),
            streams=tuple(draw(st.lists(st.integers(0, 150), min_size=1, max_size=3))),
        )
        for _ in range(draw(st.integers(1, 3)))
    ]
    partitionings = st.sampled_from([None, Rebalance(), Rescale(), Global()])
    for _ in range(draw(st.integers(1, 4))):
        kind = draw(st.sampled_from(["keyed", "union", "connected", "tally"]))
        count = 2 if kind in ("union", "connected") else 1
        inputs = tuple(
            (draw(st.integers(0, len(nodes) - 1)), draw(partitionings)) for _ in range(count)
        )
        nodes.append(Node(kind, inputs, draw(parallelisms)))
    return Program(
        tuple(nodes),
        parallelism=draw(st.integers(1, 3)),
        step=draw(st.sampled_from([1, 2, 5])),
        is_chained=draw(st.booleans()),
    )


# --- what a checkpoint says ---------------------------------------------------------------------


def _record(metadata: CheckpointMetadata, number: int) -> OperatorRecord:
    [record] = [r for r in metadata.operators.values() if r.uid == f"node {number}"]
    return record


def positions(metadata: CheckpointMetadata, number: int, tap: Tap) -> list[int]:
    """The read position of each stream of a source; without a reader, it was read to its end."""
    reached = [len(stream) for stream in tap.streams]
    for handle in _record(metadata, number).subtasks.values():
        for split in map(pickle.loads, handle.source_splits):
            reached[split.stream] = split.position
    return reached


def expected(
    program: Program, taps: dict[int, Tap], metadata: CheckpointMetadata, node: int
) -> Any:
    """The records before the positions, as often as they reach the node."""
    records: Counter[int] = Counter()
    for source, ways in program.ways(node).items():
        reached = positions(metadata, source, taps[source])
        for stream, position in zip(taps[source].streams, reached, strict=True):
            records.update(dict.fromkeys(stream[:position], ways))
    return records


def remembered(program: Program, found: Checkpoint, node: int) -> Counter[int]:
    """The stored state of an operator in a checkpoint."""
    record = _record(found.metadata, node)
    handles = record.subtasks.values()
    if program.nodes[node].kind == "tally":
        return Counter(
            pickle.loads(element)
            for handle in handles
            if handle.operator is not None
            for state in pickle.loads(read_segment(handle.operator, found.resolver()))
            for element in state.elements
        )
    backend = HashMapBackend(KeyGroupRange(0, GROUPS), GROUPS)
    backend.restore(StoredImage(h.keyed, found.resolver()) for h in handles if h.keyed is not None)
    state = backend.map_state(SEEN)
    counts: Counter[int] = Counter()
    for key in list(backend.keys(SEEN.name)):
        [backend.place] = backend.places_of([key])
        counts.update(dict(state.items()))
    backend.close()
    return counts


def checkpoints_on(directory: Path) -> list[Checkpoint]:
    """All completed checkpoints of a job, oldest first."""
    paths = sorted(directory.glob("chk-*/_metadata"), key=lambda path: int(path.parent.name[4:]))
    return [open_checkpoint(str(path.parent)) for path in paths]


def named_files(found: Sequence[Checkpoint]) -> set[str]:
    """All files of these checkpoints, below the directory of their job."""
    files = {f"{each.location.name}/_metadata" for each in found}
    return files | {each.resolver()(file)[1] for each in found for file in each.metadata.files}


def present_files(directory: Path) -> set[str]:
    """All existing files of state."""
    return {
        path.relative_to(directory).as_posix()
        for path in directory.rglob("*")
        if path.is_file() and path.parent != directory
    }
