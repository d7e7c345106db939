"""The job as it runs: vertices, edges, levels and pipelines. Plain data."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from tidegate.connectors.source import Source
from tidegate.core.ids import EdgeId, Level, OperatorId, PipelineId, SubtaskIndex, VertexId
from tidegate.graph.partitioning import Partitioning
from tidegate.operators.base import Operator
from tidegate.state.keys.key_groups import KeyGroupRange, range_of
from tidegate.types.arrow import ArrowFormat


@dataclass(frozen=True, slots=True)
class ChainLink:
    """The input of a chained operator, inside its vertex."""

    operator_index: int
    side_tag: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainedOperator:
    """One operator of a vertex; the first one is the head, the others form a tree below it."""

    operator_id: OperatorId
    name: str
    uid: str | None
    operator: Operator | None
    """None in the skeleton, which is sent to the slots with the pickled operators."""
    parent: ChainLink | None = None
    is_keyed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Vertex:
    """Operators that run in one subtask and pass batches directly to each other."""

    id: VertexId
    pipeline: PipelineId
    level: Level
    parallelism: int
    max_parallelism: int
    is_max_parallelism_chosen: bool = True
    """Otherwise it is derived from the parallelism, or from the restored state."""
    chain: tuple[ChainedOperator, ...]
    source: Source | None = None
    """The source of the chain's head; its splits are enumerated in the driver."""

    @property
    def name(self) -> str:
        return " -> ".join(operator.name for operator in self.chain)

    def key_groups_of(self, subtask: SubtaskIndex) -> KeyGroupRange:
        return range_of(subtask, self.parallelism, self.max_parallelism)


@dataclass(frozen=True, slots=True, kw_only=True)
class Edge:
    """A connection from an operator of one vertex to the head of another."""

    id: EdgeId
    source: VertexId
    source_operator: int
    """Index in the chain of the source vertex."""
    side_tag: str | None
    target: VertexId
    input_index: int
    partitioning: Partitioning
    format: ArrowFormat | None


@dataclass(frozen=True)
class JobGraph:
    """A whole job; vertices are in topological order, and their ids are their positions."""

    name: str
    vertices: tuple[Vertex, ...]
    edges: tuple[Edge, ...]

    @property
    def slots(self) -> int:
        """The number of slots: slot i hosts subtask i of every vertex."""
        return max(vertex.parallelism for vertex in self.vertices)

    @cached_property
    def pipelines(self) -> tuple[Pipeline, ...]:
        ids = sorted({vertex.pipeline for vertex in self.vertices})
        return tuple(
            Pipeline(id, tuple(v for v in self.vertices if v.pipeline == id)) for id in ids
        )

    def edges_into(self, vertex: VertexId) -> tuple[Edge, ...]:
        return tuple(edge for edge in self.edges if edge.target == vertex)

    def edges_from(self, vertex: VertexId) -> tuple[Edge, ...]:
        return tuple(edge for edge in self.edges if edge.source == vertex)


@dataclass(frozen=True)
class Pipeline:
    """A connected component: it steps, fails and restarts on its own."""

    id: PipelineId
    vertices: tuple[Vertex, ...]

    @cached_property
    def levels(self) -> int:
        return 1 + max(vertex.level for vertex in self.vertices)

    @cached_property
    def slots(self) -> int:
        return max(vertex.parallelism for vertex in self.vertices)

    @cached_property
    def sources(self) -> tuple[Vertex, ...]:
        return tuple(vertex for vertex in self.vertices if vertex.source is not None)
