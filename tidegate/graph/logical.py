"""The program as written: transformations and their inputs."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from enum import Enum, auto

from tidegate.connectors.source import Source
from tidegate.graph.partitioning import Partitioning
from tidegate.operators.base import Operator
from tidegate.operators.event_time.strategy import WatermarkStrategy
from tidegate.types.typeinfo import TypeInformation

_ids = itertools.count(1)


class ChainingStrategy(Enum):
    """Whether an operator may share a vertex with its neighbours."""

    ALWAYS = auto()
    HEAD = auto()
    """Starts a new chain; later operators may join it."""
    NEVER = auto()


@dataclass(frozen=True, slots=True)
class Upstream:
    """One input stream of a transformation."""

    transformation: Transformation
    partitioning: Partitioning | None = None
    """None: forward at equal parallelism, otherwise rebalance, as in Flink."""
    side_tag: str | None = None
    """The side output to read instead of the main one."""
    input_index: int = 0
    """Which input of a two-input operator it feeds; a union feeds the same one several times."""


@dataclass(eq=False, slots=True, kw_only=True)
class Transformation:
    """One operator of the program. Settings may change until the graph is translated."""

    name: str
    operator: Operator | None = None
    """None for a plain source."""
    source: Source | None = None
    watermarks: WatermarkStrategy | None = None
    """For a source: its event time; None: it has none."""
    inputs: tuple[Upstream, ...] = ()
    output_type: TypeInformation | None = None
    """None: records are pickled Python objects."""
    side_types: dict[str, TypeInformation | None] = field(default_factory=dict)
    parallelism: int | None = None
    """None: the environment's."""
    max_parallelism: int | None = None
    uid: str | None = None
    description: str | None = None
    chaining: ChainingStrategy = ChainingStrategy.ALWAYS
    is_keyed: bool = False
    is_sink: bool = False
    id: int = field(default_factory=lambda: next(_ids))
