"""`KeyedStream`: records partitioned by key, with state per key."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NoReturn

from tidegate.core.errors import GraphError
from tidegate.datastream.data_stream import DataStream
from tidegate.datastream.execution.declared_types import KeyLike, TypeLike, declared_type
from tidegate.datastream.windowed_stream import WindowedStream
from tidegate.graph.logical import Transformation, Upstream
from tidegate.graph.partitioning import Partitioning
from tidegate.operators.aggregations.aggregates import Aggregate, plan_aggregates
from tidegate.operators.aggregations.choice import aggregation_operator, aggregation_output_type
from tidegate.operators.aggregations.final_results import Aggregating
from tidegate.operators.aggregations.kinds import Aggregation
from tidegate.operators.aggregations.named import RunningAggregates
from tidegate.operators.aggregations.named_by_record import RunningRecordAggregates
from tidegate.operators.base import Operator
from tidegate.operators.functions import (
    FilterFunction,
    FlatMapFunction,
    KeyedProcessFunction,
    MapFunction,
    ReduceFunction,
    bound_method,
)
from tidegate.operators.keyed import (
    KeyedFilterOperator,
    KeyedFlatMapOperator,
    KeyedMapOperator,
    KeyedProcessOperator,
    KeyedReduceOperator,
)
from tidegate.operators.windows.assigners import (
    CountSlidingWindowAssigner,
    CountTumblingWindowAssigner,
    WindowAssigner,
)
from tidegate.state.keys.selection import KeySelection
from tidegate.types.arrow import arrow_format
from tidegate.types.typeinfo import TypeInformation

if TYPE_CHECKING:
    from tidegate.datastream.environment import StreamExecutionEnvironment
    from tidegate.datastream.joined_streams import IntervalJoin


class KeyedStream(DataStream):
    """A stream partitioned by key. Aggregations emit one result per record, as in Flink."""

    def __init__(
        self,
        environment: StreamExecutionEnvironment,
        upstreams: tuple[Upstream, ...],
        type_info: TypeInformation | None,
        key: KeySelection,
        key_type: TypeInformation | None,
    ) -> None:
        super().__init__(environment, upstreams, type_info)
        self._key = key
        self._key_type = key_type

    def map(
        self, func: MapFunction | Callable[[Any], Any], output_type: TypeLike | None = None
    ) -> DataStream:
        """One result per record; a MapFunction can use keyed state."""
        bound_method(func, MapFunction, "map")
        declared = declared_type(output_type)
        operator = KeyedMapOperator(func, [self._key], arrow_format(declared))
        return self._transform("Map", operator, declared)

    def flat_map(
        self, func: FlatMapFunction | Callable[[Any], Any], output_type: TypeLike | None = None
    ) -> DataStream:
        """Any number of results per record; a FlatMapFunction can use keyed state."""
        bound_method(func, FlatMapFunction, "flat_map")
        declared = declared_type(output_type)
        operator = KeyedFlatMapOperator(func, [self._key], arrow_format(declared))
        return self._transform("FlatMap", operator, declared)

    def filter(self, func: FilterFunction | Callable[[Any], bool]) -> DataStream:
        """Keep the records for which the function is true; a FilterFunction can use keyed state."""
        bound_method(func, FilterFunction, "filter")
        operator = KeyedFilterOperator(func, [self._key], arrow_format(self._type))
        return self._transform("Filter", operator, self._type)

    def process(  # type: ignore[override]
        self, func: KeyedProcessFunction, output_type: TypeLike | None = None
    ) -> DataStream:
        """Apply a function with keyed state, timers and side outputs."""
        declared = declared_type(output_type)
        operator = KeyedProcessOperator(func, [self._key], arrow_format(declared))
        return self._transform("KEYED PROCESS", operator, declared)

    def reduce(self, func: ReduceFunction | Callable[[Any, Any], Any]) -> DataStream:
        """Reduce the records of each key; emits the current value for every record."""
        bound_method(func, ReduceFunction, "reduce")
        operator = KeyedReduceOperator(func, [self._key], arrow_format(self._type))
        return self._transform("Reduce", Aggregating(operator, self._key), self._type)

    def window(self, window_assigner: WindowAssigner[Any, Any]) -> WindowedStream:
        """Put the records of each key into windows."""
        return WindowedStream(self, window_assigner)

    def count_window(self, size: int, slide: int = 0) -> WindowedStream:
        """Windows of `size` records of a key; with `slide`, one starts every `slide` records."""
        if slide == 0:
            return WindowedStream(self, CountTumblingWindowAssigner(size))
        return WindowedStream(self, CountSlidingWindowAssigner(size, slide))

    def interval_join(self, other_stream: KeyedStream) -> IntervalJoin:
        """Join records with those of another keyed stream that are close in event time.

        keyed.interval_join(other).between(lower, upper).process(function)
        """
        from tidegate.datastream.joined_streams import IntervalJoin

        return IntervalJoin(self, other_stream)

    def sum(self, position_to_sum: int | str = 0) -> DataStream:
        """The running sum of a field, in the first record of the key."""
        return self._aggregate("Sum", Aggregation.SUM, position_to_sum)

    def min(self, position_to_min: int | str = 0) -> DataStream:
        """The smallest value of a field so far, in the first record of the key."""
        return self._aggregate("Min", Aggregation.MIN, position_to_min)

    def max(self, position_to_max: int | str = 0) -> DataStream:
        """The greatest value of a field so far, in the first record of the key."""
        return self._aggregate("Max", Aggregation.MAX, position_to_max)

    def min_by(self, position_to_min_by: int | str = 0) -> DataStream:
        """The record with the smallest value of a field so far; the first among equals."""
        return self._aggregate("MinBy", Aggregation.MIN_BY, position_to_min_by)

    def max_by(self, position_to_max_by: int | str = 0) -> DataStream:
        """The record with the greatest value of a field so far; the first among equals."""
        return self._aggregate("MaxBy", Aggregation.MAX_BY, position_to_max_by)

    def count(self, field: int | str | None = None) -> DataStream:
        """The number of records of the key so far, as (key, count).

        With a field, count only records in which it is not None.
        """
        return self._aggregate("Count", Aggregation.COUNT, field)

    def agg(self, **aggregates: Aggregate) -> DataStream:
        """Several aggregates so far, as a row: the fields of the key, then the aggregates.

        `agg(bids=count(), total=sum_("price"))` emits a row for every record. The functions are
        those of `tidegate.datastream.aggregates`.
        """
        plan = plan_aggregates(aggregates, self._key, self._type, self._key_type, has_windows=False)
        operator: Operator
        if plan.format is not None:
            operator = RunningAggregates(plan)
        else:
            operator = RunningRecordAggregates(plan, self._key)
        return self._transform("Aggregate", Aggregating(operator, self._key), plan.output_type)

    def key_by(self, key_selector: KeyLike, key_type: TypeLike | None = None) -> KeyedStream:
        """Partition the same records by another key."""
        return super().key_by(key_selector, key_type)

    def _aggregate(
        self, name: str, aggregation: Aggregation, field: int | str | None
    ) -> DataStream:
        operator = aggregation_operator(aggregation, field, self._key, self._type)
        type_info = aggregation_output_type(aggregation, self._key, self._type)
        return self._transform(name, Aggregating(operator, self._key), type_info)

    def _after(
        self, name: str, operator: Operator, type_info: TypeInformation, key: KeyLike
    ) -> KeyedStream | None:
        """The results, by key, of an operator that runs where the records are before they travel.

        None: they are in several places.
        """
        if len(self._upstreams) > 1:
            return None
        upstream = replace(self._upstreams[0], partitioning=None)
        stream = DataStream(self._environment, (upstream,), self._type)
        transformation = stream._add(name, operator, type_info)
        transformation.parallelism = upstream.transformation.parallelism
        return DataStream(self._environment, (Upstream(transformation),), type_info).key_by(key)

    def _with(self, partitioning: Partitioning) -> NoReturn:
        raise GraphError(
            f"a KeyedStream is partitioned by its key, so {type(partitioning).__name__.lower()} is "
            "not possible: partition the stream before key_by(), or the result of an operator"
        )

    def cache(self) -> NoReturn:
        """Unsupported, as in Flink."""
        self._operator("cache")

    def _operator(self, call: str) -> NoReturn:
        raise GraphError(
            f"{call}() is not possible on a KeyedStream, which is not an operator: call it on the "
            "operator before key_by(), or on the next one"
        )

    def _add(
        self, name: str, operator: Operator, type_info: TypeInformation | None
    ) -> Transformation:
        transformation = super()._add(name, operator, type_info)
        transformation.is_keyed = True
        return transformation
