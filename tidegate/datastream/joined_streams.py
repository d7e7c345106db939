"""Joins of two streams: by windows, or by an interval of time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, Self, TypeVar

from tidegate.core.durations import DurationLike, as_milliseconds
from tidegate.core.errors import ConfigError, GraphError
from tidegate.datastream.connected_streams import two_input_stream
from tidegate.datastream.data_stream import DataStream
from tidegate.datastream.execution.declared_types import KeyLike, TypeLike, declared_type
from tidegate.datastream.keyed_stream import KeyedStream
from tidegate.datastream.windowed_stream import WindowOptions
from tidegate.operators.base import Operator
from tidegate.operators.joins.columnar.interval import ColumnarIntervalJoin
from tidegate.operators.joins.columnar.windowed import columnar_window_join
from tidegate.operators.joins.functions import (
    CoGroupedWindows,
    CoGroupFunction,
    FlatJoinFunction,
    JoinedWindows,
    JoinFunction,
    ProcessJoinFunction,
    TwoSided,
)
from tidegate.operators.joins.interval_join import IntervalJoinOperator, IntervalSettings
from tidegate.operators.joins.selection import (
    JoinedField,
    SelectedInInterval,
    SelectedInWindow,
    columnar_selection,
    select_fields,
)
from tidegate.operators.output_tag import OutputTag
from tidegate.operators.windows.assigners import WindowAssigner
from tidegate.operators.windows.contents import EvictedContents, ListedContents, WindowContents
from tidegate.operators.windows.merging_operator import window_operator
from tidegate.types.arrow import ArrowFormat, arrow_format
from tidegate.types.typeinfo import TypeInformation

Streams_co = TypeVar("Streams_co", bound="WindowedStreams", covariant=True)


class CoGroupedStreams:
    """Two streams to group by key and window: `where`, `equal_to`, `window`, `apply`."""

    def __init__(self, stream1: DataStream, stream2: DataStream) -> None:
        stream1._check_same_environment(stream2)
        self._streams = stream1, stream2
        self._key: KeyLike | None = None
        self._key_type: TypeLike | None = None

    def where(self, key_selector: KeyLike, key_type: TypeLike | None = None) -> Self:
        """The key of the first stream."""
        self._key, self._key_type = key_selector, key_type
        return self

    def equal_to(
        self, key_selector: KeyLike, key_type: TypeLike | None = None
    ) -> StreamsByKey[WindowedStreams]:
        """The key of the second stream."""
        return self._by_key(key_selector, key_type, WindowedStreams)

    def _by_key(
        self, key_selector: KeyLike, key_type: TypeLike | None, windowed: type[Streams_co]
    ) -> StreamsByKey[Streams_co]:
        if self._key is None:
            raise GraphError("call where(key) with the key of the first stream before equal_to()")
        first, second = self._streams
        keyed = first.key_by(self._key, self._key_type), second.key_by(key_selector, key_type)
        return StreamsByKey(*keyed, windowed)


class JoinedStreams(CoGroupedStreams):
    """Two streams; every pair of records with the same key and window is joined."""

    def equal_to(
        self, key_selector: KeyLike, key_type: TypeLike | None = None
    ) -> StreamsByKey[WindowedJoin]:
        """The key of the second stream."""
        return self._by_key(key_selector, key_type, WindowedJoin)


class StreamsByKey(Generic[Streams_co]):
    """Two keyed streams, before the windows are chosen."""

    def __init__(
        self, stream1: KeyedStream, stream2: KeyedStream, windowed: type[Streams_co]
    ) -> None:
        self._streams = stream1, stream2
        self._windowed = windowed

    def window(self, assigner: WindowAssigner[Any, Any]) -> Streams_co:
        return self._windowed(*self._streams, assigner)


class WindowedStreams(WindowOptions):
    """Two streams in windows. Triggers and evictors see (0 or 1 for the stream, record)."""

    _name = "CoGroup"
    _two_sided: type[TwoSided] = CoGroupedWindows

    def __init__(
        self, stream1: KeyedStream, stream2: KeyedStream, assigner: WindowAssigner[Any, Any]
    ) -> None:
        super().__init__(stream1.get_execution_environment(), assigner)
        self._streams = stream1, stream2

    def apply(
        self,
        function: JoinFunction[Any, Any, Any]
        | FlatJoinFunction[Any, Any, Any]
        | CoGroupFunction[Any, Any, Any]
        | Callable[[Any, Any], Any],
        output_type: TypeLike | None = None,
    ) -> DataStream:
        """Apply a function to the records of a key and window."""
        first, second = self._streams
        declared = declared_type(output_type)
        contents: WindowContents = ListedContents(None)
        if self._evictor is not None:
            contents = EvictedContents(self._evictor, contents)
        operator = window_operator(
            self._settings(),
            contents,
            self._two_sided(function),
            [first._key, second._key],
            arrow_format(declared),
            self._side_formats(),
        )
        return two_input_stream(first, second, self._name, operator, declared, is_keyed=True)


class WindowedJoin(WindowedStreams):
    """Two streams in windows, of which every pair of records with the same key is joined."""

    _name = "Join"
    _two_sided = JoinedWindows

    def select(self, **fields: JoinedField) -> DataStream:
        """Make a row of fields of both records: `select(user=left("user"), price=right("price"))`.

        The functions are those of `tidegate.datastream.joins`.
        """
        first, second = self._streams
        selected = select_fields(fields, (first._type, second._type))
        columnar = columnar_selection(selected, (first._key, second._key))
        if columnar is not None and self._evictor is None:
            operator = columnar_window_join(self._settings(), columnar, self._side_formats())
            if operator is not None:
                output = selected.output_type
                return two_input_stream(first, second, self._name, operator, output, is_keyed=True)
        return self.apply(SelectedInWindow(selected), selected.output_type)


class IntervalJoin:
    """Two keyed streams, before the interval is chosen."""

    def __init__(self, stream1: KeyedStream, stream2: KeyedStream) -> None:
        if not isinstance(stream2, KeyedStream):
            raise GraphError(
                f"an interval join needs two keyed streams, got {stream2!r}: call key_by() on it"
            )
        stream1._check_same_environment(stream2)
        self._streams = stream1, stream2

    def in_event_time(self) -> Self:
        """Interval joins always use event time."""
        return self

    def between(self, lower_bound: DurationLike, upper_bound: DurationLike) -> IntervalJoined:
        """Join each record with those from `lower_bound` to `upper_bound` after it."""
        return IntervalJoined(
            *self._streams, as_milliseconds(lower_bound), as_milliseconds(upper_bound)
        )


class IntervalJoined:
    """Two keyed streams within an interval; both bounds are inclusive unless excluded."""

    def __init__(self, stream1: KeyedStream, stream2: KeyedStream, lower: int, upper: int) -> None:
        if lower > upper:
            raise ConfigError(
                "interval", (lower, upper), "give a lower bound that is not above the upper one"
            )
        self._streams = stream1, stream2
        self._lower, self._upper = lower, upper
        self._late: list[OutputTag | None] = [None, None]

    def lower_bound_exclusive(self) -> Self:
        self._lower += 1
        return self

    def upper_bound_exclusive(self) -> Self:
        self._upper -= 1
        return self

    def side_output_left_late_data(self, output_tag: OutputTag) -> Self:
        """Send late records of the left stream to this side output instead of dropping them."""
        self._late[0] = output_tag
        return self

    def side_output_right_late_data(self, output_tag: OutputTag) -> Self:
        """Send late records of the right stream to this side output instead of dropping them."""
        self._late[1] = output_tag
        return self

    def process(
        self,
        process_join_function: ProcessJoinFunction[Any, Any, Any],
        output_type: TypeLike | None = None,
    ) -> DataStream:
        """Apply a function that returns any number of results per pair of records."""
        declared = declared_type(output_type)
        left, right = self._streams
        operator = IntervalJoinOperator(
            self._settings(),
            process_join_function,
            [left._key, right._key],
            arrow_format(declared),
            self._side_formats(),
        )
        return self._transform(operator, declared)

    def select(self, **fields: JoinedField) -> DataStream:
        """Make a row of fields of both records: `select(user=left("user"), price=right("price"))`.

        The functions are those of `tidegate.datastream.joins`.
        """
        left, right = self._streams
        selected = select_fields(fields, (left._type, right._type))
        columnar = columnar_selection(selected, (left._key, right._key))
        if columnar is None:
            return self.process(SelectedInInterval(selected), selected.output_type)
        operator = ColumnarIntervalJoin(self._settings(), columnar, self._side_formats())
        return self._transform(operator, selected.output_type)

    def _settings(self) -> IntervalSettings:
        first, second = (None if tag is None else tag.tag_id for tag in self._late)
        return IntervalSettings(self._lower, self._upper, (first, second))

    def _side_formats(self) -> dict[str, ArrowFormat | None]:
        return {tag.tag_id: arrow_format(tag.type_info) for tag in self._late if tag is not None}

    def _transform(self, operator: Operator, type_info: TypeInformation | None) -> DataStream:
        return two_input_stream(*self._streams, "Interval Join", operator, type_info, is_keyed=True)
