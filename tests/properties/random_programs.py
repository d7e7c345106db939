"""Random programs over integers, and an interpreter that computes their expected results.

A program is drawn as transformations, like those of the user's API. The interpreter evaluates them
with plain lists: no subtasks, no batches, no channels. Of parallelism, it only knows how many
copies a broadcast makes, and where an order is lost.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from operator import add
from typing import Any

from hypothesis import strategies as st

from tests.programs import apply, collected, read
from tidegate.graph.chaining import resolve_partitioning
from tidegate.graph.logical import ChainingStrategy, Transformation, Upstream
from tidegate.graph.partitioning import (
    Broadcast,
    ByKeyGroup,
    Custom,
    Forward,
    Global,
    Partitioning,
    Rebalance,
    Rescale,
    Shuffle,
)
from tidegate.operators.aggregations.choice import aggregation_operator
from tidegate.operators.aggregations.columnar import SumAggregation
from tidegate.operators.aggregations.kinds import Aggregation
from tidegate.operators.base import Operator, OperatorContext, Output
from tidegate.operators.endpoints.operators import SinkOperator
from tidegate.operators.functions import CoFlatMapFunction, ProcessFunction
from tidegate.operators.keyed import KeyedReduceOperator
from tidegate.operators.output_tag import OutputTag
from tidegate.operators.stateless import (
    FilterOperator,
    FlatMapOperator,
    MapOperator,
    ProcessOperator,
)
from tidegate.operators.two_inputs.co import CoFlatMapOperator
from tidegate.state.keys.selection import KeySelection, select_key
from tidegate.state.keys.stable_hash import stable_hash
from tidegate.stream.batch import Batch
from tidegate.types.arrow import ArrowFormat, arrow_format
from tidegate.types.typeinfo import Types

INVOCATIONS: Counter[int] = Counter()
"""How often each traced function was called; slots of the mini cluster share this process."""
ODD = OutputTag("odd")
MANY = 400
"""Longer streams are neither duplicated nor broadcast."""
_numbers = itertools.count(1)


@dataclass
class Traced:
    """A function on integers that counts its calls."""

    number: int = field(default_factory=lambda: next(_numbers))

    def __call__(self, value: int) -> Any:
        INVOCATIONS[self.number] += 1
        return self.result(value)

    def result(self, value: int) -> Any:
        raise NotImplementedError


class Affine(Traced):
    def result(self, value: int) -> int:
        return value * 3 + self.number


class NotByFive(Traced):
    def result(self, value: int) -> bool:
        return value % 5 != 0


class Twice(Traced):
    def result(self, value: int) -> list[int]:
        return [value, -value] if value % 2 else [value]


class OddAside(ProcessFunction):
    """Odd numbers go to the side output, all numbers to the main one."""

    def __init__(self) -> None:
        self.number = next(_numbers)

    def process_element(self, value: int, ctx: Any) -> Any:
        INVOCATIONS[self.number] += 1
        if value % 2:
            yield ODD, value
        yield value + 1


class TellApart(CoFlatMapFunction):
    def __init__(self) -> None:
        self.number = next(_numbers)

    def flat_map1(self, value: int) -> list[int]:
        INVOCATIONS[self.number] += 1
        return [value * 10]

    def flat_map2(self, value: int) -> list[int]:
        INVOCATIONS[self.number] += 1
        return [value * 10 + 1]


def remainder(value: int) -> int:
    return value % 7


def modulo(key: int, targets: int) -> int:
    return key % targets


def running_sums(records: list[int], key: Callable[[int], int]) -> Iterator[int]:
    totals: Counter[int] = Counter()
    for record in records:
        totals[key(record)] += record
        yield totals[key(record)]


class RunningTotal(Operator):
    """Per key: the number of records so far, or a sum that reveals their order."""

    def __init__(self, key: KeySelection, *, sums: bool) -> None:
        self.key = key
        self.sums = sums
        self.number = next(_numbers)

    def open(self, context: OperatorContext, output: Output) -> None:
        super().open(context, output)
        self._context = context
        self._totals: dict[int, int] = {}

    def process(self, batch: Batch, input_index: int = 0) -> None:
        for record in batch.records:
            group = stable_hash(remainder(record)) % self._context.max_parallelism
            assert group in self._context.key_groups, "a record came to who does not own its key"
        INVOCATIONS[self.number] += len(batch)
        self.output.emit(Batch.of_records(list(self.results(batch.records, self._totals))))

    def results(self, records: list[int], totals: dict[int, int]) -> Any:
        for record in records:
            key = remainder(record)
            totals[key] = totals.get(key, 0) + (record if self.sums else 1)
            yield totals[key] * 7 + key


# --- the interpreter ----------------------------------------------------------------------------


@dataclass(frozen=True)
class Stream:
    """What the interpreter knows about an output."""

    records: list[int]
    is_ordered: bool
    """Whether the records arrive in exactly this order, through a single subtask."""


class Interpreter:
    """Evaluates transformations over lists, each once, however many read it."""

    def __init__(self, parallelism: int) -> None:
        self._default = parallelism
        self._done: dict[Transformation, dict[str | None, Stream]] = {}
        self.calls: Counter[int] = Counter()

    def width(self, transformation: Transformation) -> int:
        return transformation.parallelism or self._default

    def run(self, transformation: Transformation, tag: str | None = None) -> Stream:
        if transformation not in self._done:
            self._done[transformation] = self._outputs(transformation)
        return self._done[transformation].get(tag, Stream([], False))

    def _outputs(self, t: Transformation) -> dict[str | None, Stream]:
        if t.source is not None:
            records = t.source._batch.records
            return {None: Stream(list(records), self.width(t) == 1)}
        inputs = [(up.input_index, self.arriving(t, up)) for up in t.inputs]
        ordered = len(inputs) == 1 and inputs[0][1].is_ordered
        if number := getattr(getattr(t.operator, "function", t.operator), "number", None):
            self.calls[number] += sum(len(stream.records) for _, stream in inputs)
        main: list[int] = []
        side: list[int] = []
        for index, stream in inputs:
            for result in _results(t.operator, stream.records, index):
                if isinstance(result, tuple):
                    side.append(result[1])
                else:
                    main.append(result)
        ordered = ordered and self.width(t) == 1
        return {None: Stream(main, ordered), ODD.tag_id: Stream(side, ordered)}

    def arriving(self, t: Transformation, up: Upstream) -> Stream:
        """The records that arrive through an edge."""
        stream = self.run(up.transformation, up.side_tag)
        source, target = self.width(up.transformation), self.width(t)
        partitioning = resolve_partitioning(up, source, target)
        copies = target if isinstance(partitioning, Broadcast) else 1
        # Keying keeps the order within a key, which is all that a keyed operator can see.
        keeps_order = target == 1 or isinstance(partitioning, Global | ByKeyGroup)
        return Stream(stream.records * copies, stream.is_ordered and keeps_order)


def _results(operator: Operator | None, records: list[int], index: int) -> Any:
    match operator:
        case MapOperator(function=function):
            return [function.result(record) for record in records]
        case FilterOperator(function=function):
            return [record for record in records if function.result(record)]
        case FlatMapOperator(function=function):
            return [result for record in records for result in function.result(record)]
        case ProcessOperator():
            sides = [(ODD, record) for record in records if record % 2]
            return [*sides, *(record + 1 for record in records)]
        case CoFlatMapOperator():
            return [record * 10 + index for record in records]
        case RunningTotal():
            return list(operator.results(records, {}))
        case KeyedReduceOperator():
            return list(running_sums(records, remainder))
        case SumAggregation():
            return list(running_sums(records, int))
        case SinkOperator():
            return records
    raise NotImplementedError(operator)


# --- the generator ------------------------------------------------------------------------------


class RandomProgram:
    """Sinks by name, and how to run the program."""

    def __init__(self, sinks: dict[str, Transformation], parallelism: int, chaining: bool) -> None:
        self.sinks = sinks
        self.parallelism = parallelism
        self.chaining = chaining

    def format_of(self, sink: str) -> ArrowFormat | None:
        """The format of the records of a sink."""
        (up,) = self.sinks[sink].inputs
        declared = up.transformation.output_type if up.side_tag is None else None
        return None if declared is None else arrow_format(declared)

    def __repr__(self) -> str:
        lines = [f"parallelism {self.parallelism}, chaining {self.chaining}"]
        for t in every_transformation(self.sinks.values()):
            inputs = ", ".join(
                f"{up.transformation.id}{'/' + up.side_tag if up.side_tag else ''}"
                f" by {type(up.partitioning).__name__} at {up.input_index}"
                for up in t.inputs
            )
            what = type(t.operator).__name__ if t.source is None else t.source._batch.records
            lines.append(f"  {t.id}: {what} x {t.parallelism} {t.chaining.name} <- {inputs}")
        return "\n".join(lines)


def every_transformation(sinks: Any) -> list[Transformation]:
    found: set[Transformation] = set()
    waiting = list(sinks)
    while waiting:
        transformation = waiting.pop()
        if transformation not in found:
            found.add(transformation)
            waiting.extend(up.transformation for up in transformation.inputs)
    return sorted(found, key=lambda t: t.id)


class _Drawer:
    """Draws one program, tracking the length of each stream and whether it is ordered."""

    def __init__(self, draw: st.DrawFn, parallelism: int) -> None:
        self.draw = draw
        self.reference = Interpreter(parallelism)
        self.outputs: list[tuple[Transformation, str | None]] = []
        self.read: set[tuple[Transformation, str | None]] = set()

    def settings(self) -> dict[str, Any]:
        return {
            "parallelism": self.draw(st.none() | st.integers(1, 4)),
            "chaining": self.draw(
                st.sampled_from([ChainingStrategy.ALWAYS, *ChainingStrategy])  # mostly ALWAYS
            ),
        }

    def source(self) -> None:
        records = self.draw(st.lists(st.integers(-20, 20), max_size=10))
        type_info = self.draw(st.sampled_from([None, Types.LONG()]))
        self.outputs.append((read(records, type_info=type_info, **self.settings()), None))

    def upstream(self, width: int, index: int = 0) -> Upstream:
        transformation, tag = self.draw(st.sampled_from(self.outputs))
        self.read.add((transformation, tag))
        options: list[Partitioning | None] = [
            None,
            Rebalance(),
            Rescale(),
            Shuffle(),
            Global(),
            ByKeyGroup(select_key(remainder)),
            Custom(modulo, select_key(remainder)),
        ]
        if self.reference.width(transformation) == width:
            options += [Forward(), None, None]
        if len(self.reference.run(transformation, tag).records) < MANY:
            options.append(Broadcast())
        return Upstream(transformation, self.draw(st.sampled_from(options)), tag, index)

    def operator(self) -> None:
        settings = self.settings()
        width = settings["parallelism"] or self.reference._default
        kind = self.draw(
            st.sampled_from(["map", "filter", "flat_map", "process", "keyed", "union", "connect"])
        )
        format = self.draw(st.sampled_from([None, arrow_format(Types.LONG())]))
        typed = {"output_type": None if format is None else Types.LONG()}
        if kind == "keyed":
            self.keyed(settings)
            return
        inputs = [self.upstream(width)]
        small = len(self.reference.run(inputs[0].transformation).records) < MANY
        match kind:
            case "union" | "connect":
                inputs.append(self.upstream(width, index=1 if kind == "connect" else 0))
                if kind == "connect":
                    new = apply(
                        CoFlatMapOperator(TellApart(), format), *inputs, **settings, **typed
                    )
                else:
                    new = apply(MapOperator(Affine(), format), *inputs, **settings, **typed)
            case "filter":
                up = inputs[0]
                kept = up.transformation.output_type if up.side_tag is None else None
                new = apply(FilterOperator(NotByFive()), *inputs, output_type=kept, **settings)
            case "flat_map" if small:
                new = apply(FlatMapOperator(Twice(), format), *inputs, **settings, **typed)
            case "process":
                new = apply(ProcessOperator(OddAside(), format), *inputs, **settings, **typed)
                self.outputs.append((new, ODD.tag_id))
            case _:
                new = apply(MapOperator(Affine(), format), *inputs, **settings, **typed)
        self.outputs.append((new, None))

    def keyed(self, settings: dict[str, Any]) -> None:
        transformation, tag = self.draw(st.sampled_from(self.outputs))
        self.read.add((transformation, tag))
        declared = transformation.output_type if tag is None else None
        # A result that depends on the order can only be predicted if there is one.
        is_ordered = self.reference.run(transformation, tag).is_ordered
        key, kept = select_key(remainder), None
        operator: Operator = RunningTotal(key, sums=is_ordered)
        if self.draw(st.booleans()) and declared is not None:
            key, kept = select_key(0, declared), declared
            operator = aggregation_operator(Aggregation.SUM, 0, key, declared)
        elif self.draw(st.booleans()) and is_ordered:
            operator = KeyedReduceOperator(add, [key], None)
        up = Upstream(transformation, ByKeyGroup(key), tag)
        new = apply(operator, up, is_keyed=True, output_type=kept, **settings)
        self.outputs.append((new, None))

    def sinks(self) -> dict[str, Transformation]:
        unread = [output for output in self.outputs if output not in self.read]
        more = self.draw(st.lists(st.sampled_from(self.outputs), max_size=1))
        return {
            f"sink{i}": collected(Upstream(t, None, tag), f"sink{i}", **self.settings())
            for i, (t, tag) in enumerate([*unread, *more])
        }


@st.composite
def random_programs(draw: st.DrawFn) -> RandomProgram:
    """Sources, operators in any arrangement, and a sink for every output that is not read."""
    parallelism = draw(st.integers(1, 4))
    drawer = _Drawer(draw, parallelism)
    for _ in range(draw(st.integers(1, 3))):
        drawer.source()
    for _ in range(draw(st.integers(1, 7))):
        drawer.operator()
    return RandomProgram(drawer.sinks(), parallelism, draw(st.booleans()))
