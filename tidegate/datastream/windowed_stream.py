"""`WindowedStream` and `AllWindowedStream`: records in windows."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, Self

from tidegate.core.durations import DurationLike, as_milliseconds
from tidegate.core.errors import ConfigError, GraphError
from tidegate.datastream.execution.declared_types import TypeLike, declared_type
from tidegate.operators.aggregations.aggregates import (
    Aggregate,
    AggregatePlan,
    count,
    plan_aggregates,
)
from tidegate.operators.aggregations.choice import aggregation_output_type
from tidegate.operators.aggregations.kinds import Aggregation
from tidegate.operators.aggregations.named_by_record import NamedAggregates
from tidegate.operators.base import Operator
from tidegate.operators.functions import AggregateFunction, Function, ReduceFunction
from tidegate.operators.output_tag import OutputTag
from tidegate.operators.windows.aggregates import (
    AggregatedRecord,
    AggregateRows,
    AllAggregateRows,
    AllCount,
    CountWithKey,
)
from tidegate.operators.windows.assigners import MergingWindowAssigner, WindowAssigner
from tidegate.operators.windows.columnar.choice import (
    columnar_agg,
    columnar_aggregation,
    window_combiner,
)
from tidegate.operators.windows.columnar.operator import ColumnarWindowOperator
from tidegate.operators.windows.contents import (
    AggregatedContents,
    EvictedContents,
    ListedContents,
    ReducedContents,
    WindowContents,
)
from tidegate.operators.windows.evictors import Evictor
from tidegate.operators.windows.functions import (
    AllWindowFunction,
    ProcessAllWindowFunction,
    ProcessWindowFunction,
    WindowFunction,
)
from tidegate.operators.windows.merging_operator import window_operator
from tidegate.operators.windows.operator import WindowSettings
from tidegate.operators.windows.triggers import Trigger
from tidegate.state.keys.selectors import field_position
from tidegate.types.arrow import ArrowFormat, arrow_format
from tidegate.types.typeinfo import TypeInformation, Types

if TYPE_CHECKING:
    from tidegate.datastream.data_stream import DataStream
    from tidegate.datastream.environment import StreamExecutionEnvironment
    from tidegate.datastream.keyed_stream import KeyedStream

NO_KEY = 0
"""The common key of the records of a stream without keys."""


class WindowOptions:
    """Settings of windows, before a function is applied to them."""

    def __init__(
        self, environment: StreamExecutionEnvironment, window_assigner: WindowAssigner[Any, Any]
    ) -> None:
        if not isinstance(window_assigner, WindowAssigner):
            raise TypeError(f"expected a window assigner, got {window_assigner!r}")
        self._assigner = window_assigner
        self._trigger: Trigger[Any, Any] = window_assigner.get_default_trigger(environment)
        self._evictor: Evictor[Any, Any] | None = None
        self._lateness = 0
        self._late_tag: OutputTag | None = None

    def trigger(self, trigger: Trigger[Any, Any]) -> Self:
        """Use this trigger instead of the assigner's default."""
        if not isinstance(trigger, Trigger):
            raise TypeError(f"expected a Trigger, got {trigger!r}")
        if isinstance(self._assigner, MergingWindowAssigner) and not trigger.can_merge():
            raise GraphError(
                f"{trigger!r} cannot merge, but windows of {type(self._assigner).__name__} do: use "
                "another trigger, or implement can_merge() and on_merge()"
            )
        self._trigger = trigger
        return self

    def evictor(self, evictor: Evictor[Any, Any]) -> Self:
        """Remove records from a window before or after it is evaluated.

        The window then keeps all its records until it fires, even with `reduce` and `aggregate`.
        """
        if not isinstance(evictor, Evictor):
            raise TypeError(f"expected an Evictor, got {evictor!r}")
        self._evictor = evictor
        return self

    def allowed_lateness(self, time_ms: DurationLike) -> Self:
        """Keep windows for this long after their end; late records make them fire again."""
        lateness = as_milliseconds(time_ms)
        if lateness < 0:
            raise ConfigError("allowed lateness", time_ms, "give zero or more")
        self._lateness = lateness
        return self

    def side_output_late_data(self, output_tag: OutputTag) -> Self:
        """Send late records to this side output instead of dropping them."""
        if not isinstance(output_tag, OutputTag):
            raise TypeError(f"expected an OutputTag, got {output_tag!r}")
        self._late_tag = output_tag
        return self

    def _settings(self) -> WindowSettings:
        late_tag = None if self._late_tag is None else self._late_tag.tag_id
        return WindowSettings(self._assigner, self._trigger, self._lateness, late_tag)

    def _side_formats(self) -> dict[str, ArrowFormat | None]:
        if self._late_tag is None:
            return {}
        return {self._late_tag.tag_id: arrow_format(self._late_tag.type_info)}


class WindowedStream(WindowOptions):
    """The records of each key in windows."""

    _functions: ClassVar[tuple[type[Function], ...]] = (WindowFunction, ProcessWindowFunction)

    def __init__(
        self, keyed_stream: KeyedStream, window_assigner: WindowAssigner[Any, Any]
    ) -> None:
        super().__init__(keyed_stream.get_execution_environment(), window_assigner)
        self._keyed_stream = keyed_stream

    def get_execution_environment(self) -> StreamExecutionEnvironment:
        """The environment that the stream belongs to."""
        return self._keyed_stream.get_execution_environment()

    def get_input_type(self) -> TypeInformation:
        """The type of the records that go into windows."""
        return self._keyed_stream.get_type()

    def reduce(
        self,
        reduce_function: ReduceFunction | Callable[[Any, Any], Any],
        window_function: Any = None,
        output_type: TypeLike | None = None,
    ) -> DataStream:
        """Reduce the records of a window as they arrive.

        A window function, if given, receives only the result.
        """
        held = self._keyed_stream._type
        declared = declared_type(output_type)
        if output_type is None and window_function is None:
            declared = held
        return self._evaluated(ReducedContents(reduce_function, held), window_function, declared)

    def aggregate(
        self,
        aggregate_function: AggregateFunction,
        window_function: Any = None,
        accumulator_type: TypeLike | None = None,
        output_type: TypeLike | None = None,
    ) -> DataStream:
        """Aggregate the records of a window as they arrive.

        A window function, if given, receives only the result.
        """
        contents = AggregatedContents(aggregate_function, declared_type(accumulator_type))
        return self._evaluated(contents, window_function, declared_type(output_type))

    def apply(self, window_function: Any, output_type: TypeLike | None = None) -> DataStream:
        """Apply a function to all records of a window; it returns any number of results."""
        return self._listed(window_function, output_type)

    def process(
        self, process_window_function: Any, output_type: TypeLike | None = None
    ) -> DataStream:
        """Like `apply`, with a function that can use time, state and side outputs."""
        return self._listed(process_window_function, output_type)

    def sum(self, position_to_sum: int | str = 0) -> DataStream:
        """The sum of a field, in the first record of the window."""
        return self._aggregated(Aggregation.SUM, position_to_sum)

    def min(self, position_to_min: int | str = 0) -> DataStream:
        """The smallest value of a field, in the first record of the window."""
        return self._aggregated(Aggregation.MIN, position_to_min)

    def max(self, position_to_max: int | str = 0) -> DataStream:
        """The greatest value of a field, in the first record of the window."""
        return self._aggregated(Aggregation.MAX, position_to_max)

    def min_by(self, position_to_min_by: int | str = 0) -> DataStream:
        """The record with the smallest value of a field; the first among equals."""
        return self._aggregated(Aggregation.MIN_BY, position_to_min_by)

    def max_by(self, position_to_max_by: int | str = 0) -> DataStream:
        """The record with the greatest value of a field; the first among equals."""
        return self._aggregated(Aggregation.MAX_BY, position_to_max_by)

    def count(self, field: int | str | None = None) -> DataStream:
        """The number of records in the window, as (key, count).

        With a field, count only records in which it is not None.
        """
        stream = self._keyed_stream
        output = aggregation_output_type(Aggregation.COUNT, stream._key, stream._type)
        operator = self._columnar_aggregation(Aggregation.COUNT, field)
        if operator is not None:
            return self._transform(operator, output)
        function = NamedAggregates([count(self._position(field))])
        return self.aggregate(function, CountWithKey(), output_type=output)

    def agg(self, **aggregates: Aggregate) -> DataStream:
        """Several aggregates of the window, as a row: the fields of the key, then the aggregates.

        `agg(bids=count(), total=sum_("price"), start=window_start())`: the functions are those of
        `tidegate.datastream.aggregates`.
        """
        stream = self._keyed_stream
        plan = plan_aggregates(
            aggregates, stream._key, stream._type, stream._key_type, has_windows=True
        )
        if self._evictor is None:
            operator = columnar_agg(self._settings(), plan, self._side_formats())
            if operator is not None:
                return self._columnar(operator, plan)
        return self._named(plan, AggregateRows(plan))

    def _columnar(self, operator: ColumnarWindowOperator, plan: AggregatePlan) -> DataStream:
        """On columns, and added up before the records travel if that gives the same."""
        combiner = window_combiner(self._settings(), plan)
        if combiner is not None:
            name, rows = type(self._assigner).__name__, combiner.rows
            stream = self._keyed_stream._after(
                f"Local {name}", combiner, rows.type_info, rows.key_columns
            )
            if stream is not None:
                operator.partial = rows
                return stream._transform(name, operator, plan.output_type)
        return self._transform(operator, plan.output_type)

    def _named(self, plan: AggregatePlan, rows: Any) -> DataStream:
        function = NamedAggregates(list(plan.aggregates.values()))
        return self.aggregate(function, rows, output_type=plan.output_type)

    def _aggregated(self, aggregation: Aggregation, field: int | str) -> DataStream:
        operator = self._columnar_aggregation(aggregation, field)
        if operator is not None:
            return self._transform(operator, self._keyed_stream._type)
        position = self._position(field)
        assert position is not None
        return self.reduce(AggregatedRecord(aggregation, position))

    def _columnar_aggregation(
        self, aggregation: Aggregation, field: int | str | None
    ) -> Operator | None:
        stream = self._keyed_stream
        if self._evictor is not None:
            return None
        return columnar_aggregation(
            self._settings(),
            aggregation,
            self._position(field),
            stream._key,
            stream._type,
            self._side_formats(),
        )

    def _position(self, field: int | str | None) -> int | str | None:
        type_info = self._keyed_stream._type
        return field if field is None or type_info is None else field_position(field, type_info)

    def _listed(self, function: Any, output_type: TypeLike | None) -> DataStream:
        if function is None:
            raise TypeError(f"expected a {self._expected()}, got None")
        contents = ListedContents(self._keyed_stream._type)
        return self._evaluated(contents, function, declared_type(output_type))

    def _evaluated(
        self, contents: WindowContents, function: Any, type_info: TypeInformation | None
    ) -> DataStream:
        if function is not None and not isinstance(function, self._functions):
            raise TypeError(f"expected a {self._expected()}, got {function!r}")
        if self._evictor is not None:
            contents = EvictedContents(self._evictor, contents)
        operator = window_operator(
            self._settings(),
            contents,
            function,
            [self._keyed_stream._key],
            arrow_format(type_info),
            self._side_formats(),
        )
        return self._transform(operator, type_info)

    def _expected(self) -> str:
        return " or ".join(kind.__name__ for kind in self._functions)

    def _transform(self, operator: Operator, type_info: TypeInformation | None) -> DataStream:
        """The results of a window operator."""
        return self._keyed_stream._transform(type(self._assigner).__name__, operator, type_info)


class AllWindowedStream(WindowedStream):
    """All records of a stream in windows, in one subtask."""

    _functions = (AllWindowFunction, ProcessAllWindowFunction)

    def __init__(self, data_stream: DataStream, window_assigner: WindowAssigner[Any, Any]) -> None:
        super().__init__(data_stream.key_by(_no_key), window_assigner)

    def count(self, field: int | str | None = None) -> DataStream:
        """The number of records in the window; with a field, those in which it is not None."""
        function = NamedAggregates([count(self._position(field))])
        return self.aggregate(function, AllCount(), output_type=Types.LONG())

    def agg(self, **aggregates: Aggregate) -> DataStream:
        """Several aggregates of the window, as a row."""
        plan = plan_aggregates(aggregates, None, self._keyed_stream._type, None, has_windows=True)
        return self._named(plan, AllAggregateRows(plan))

    def _transform(self, operator: Operator, type_info: TypeInformation | None) -> DataStream:
        return super()._transform(operator, type_info).force_non_parallel()


def _no_key(record: Any) -> int:
    return NO_KEY
