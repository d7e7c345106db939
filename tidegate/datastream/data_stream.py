"""`DataStream`: a stream of records, and all operations that need no key."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, NoReturn, overload

from tidegate.connectors.driver_side import PrintSink
from tidegate.connectors.sink import Sink
from tidegate.core.errors import GraphError
from tidegate.datastream.data_stream_sink import DataStreamSink
from tidegate.datastream.execution.declared_types import (
    KeyLike,
    TypeLike,
    declared_key,
    declared_type,
    field_position,
)
from tidegate.datastream.execution.opened_partitioner import OpenedWithPartitioner
from tidegate.datastream.execution.operator_settings import OperatorSettings
from tidegate.datastream.execution.sink_operators import SinkLike, sink_operator
from tidegate.graph.logical import Transformation, Upstream
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
from tidegate.operators.base import Operator
from tidegate.operators.endpoints.operators import SinkOperator
from tidegate.operators.event_time.assigning import assign_timestamps
from tidegate.operators.event_time.strategy import WatermarkStrategy
from tidegate.operators.functions import (
    FilterFunction,
    FlatMapFunction,
    MapFunction,
    Partitioner,
    ProcessFunction,
    bound_method,
)
from tidegate.operators.output_tag import OutputTag
from tidegate.operators.stateless import (
    FilterOperator,
    FlatMapOperator,
    MapOperator,
    ProcessOperator,
    ProjectOperator,
)
from tidegate.operators.windows.assigners import (
    CountSlidingWindowAssigner,
    CountTumblingWindowAssigner,
    WindowAssigner,
)
from tidegate.state.descriptors import MapStateDescriptor
from tidegate.state.keys.selection import KeySelection
from tidegate.types.arrow import arrow_format
from tidegate.types.typeinfo import RowTypeInfo, TupleTypeInfo, TypeInformation, Types

if TYPE_CHECKING:
    import pyspark.sql

    from tidegate.common.execution_config import ExecutionConfig
    from tidegate.datastream.broadcast_stream import BroadcastConnectedStream, BroadcastStream
    from tidegate.datastream.cached_data_stream import CachedDataStream
    from tidegate.datastream.connected_streams import ConnectedStreams
    from tidegate.datastream.environment import StreamExecutionEnvironment
    from tidegate.datastream.execution.closeable_iterator import CloseableIterator
    from tidegate.datastream.joined_streams import CoGroupedStreams, JoinedStreams
    from tidegate.datastream.keyed_stream import KeyedStream
    from tidegate.datastream.windowed_stream import AllWindowedStream

_NO_KEY = "call key_by() before it, or window_all() for windows without keys"
_NOT_THERE = {
    "count_window": _NO_KEY,
    "window": _NO_KEY,
}


class DataStream(OperatorSettings):
    """The output of an operator: possibly united with others, partitioned, or a side output.

    With an `output_type`, records are Arrow columns; without one, they are pickled Python objects.
    """

    def __init__(
        self,
        environment: StreamExecutionEnvironment,
        upstreams: tuple[Upstream, ...],
        type_info: TypeInformation | None,
    ) -> None:
        self._environment = environment
        self._upstreams = upstreams
        self._type = type_info

    # --- functions ------------------------------------------------------------------------------

    def map(
        self, func: MapFunction | Callable[[Any], Any], output_type: TypeLike | None = None
    ) -> DataStream:
        """Apply a function that returns one result per record."""
        declared = declared_type(output_type)
        return self._transform("Map", MapOperator(func, arrow_format(declared)), declared)

    def flat_map(
        self, func: FlatMapFunction | Callable[[Any], Any], output_type: TypeLike | None = None
    ) -> DataStream:
        """Apply a function that returns any number of results per record."""
        declared = declared_type(output_type)
        return self._transform("FlatMap", FlatMapOperator(func, arrow_format(declared)), declared)

    def filter(self, func: FilterFunction | Callable[[Any], bool]) -> DataStream:
        """Keep the records for which the function returns a true value."""
        return self._transform("Filter", FilterOperator(func), self._type)

    def process(self, func: ProcessFunction, output_type: TypeLike | None = None) -> DataStream:
        """Apply a function with any number of results per record, and side outputs."""
        declared = declared_type(output_type)
        return self._transform("PROCESS", ProcessOperator(func, arrow_format(declared)), declared)

    def map_batches(
        self,
        func: Callable[[Any], Any],
        output_type: TypeLike | None = None,
        format: Literal["arrow", "pandas", "polars"] | None = None,
    ) -> DataStream:
        """Apply a function to whole batches of a typed stream, as Arrow, pandas or polars frames.

        The function receives up to some hundred thousand records and returns any number of rows
        with the columns of `output_type`, or of this stream. Without `format`, the annotation of
        its parameter decides; the default is Arrow.
        """
        # pandas takes half a second to import; only programs that use it should pay for it.
        from tidegate.operators.batches import FrameKind, MapBatchesOperator

        declared = self._type if output_type is None else declared_type(output_type)
        kind = None if format is None else FrameKind(format)
        wanted = None if output_type is None else arrow_format(declared)
        operator = MapBatchesOperator(func, arrow_format(self._type), wanted, kind)
        return self._transform("MapBatches", operator, declared)

    def assign_timestamps_and_watermarks(self, watermark_strategy: WatermarkStrategy) -> DataStream:
        """Assign timestamps to records and emit watermarks: event time starts here.

        Each subtask has its own generator. With `from_source`, each split of the source has one.
        """
        operator = assign_timestamps(watermark_strategy, self._type)
        return self._transform("Timestamps/Watermarks", operator, self._type)

    def project(self, *field_indexes: int | str) -> DataStream:
        """Select fields of tuples or rows, by position or name, in the given order."""
        if not isinstance(self._type, TupleTypeInfo | RowTypeInfo):
            raise GraphError(
                f"only streams of tuples or rows can be projected, found {self.get_type()}: "
                "give the operator before it the output_type Types.TUPLE or Types.ROW"
            )
        positions = [field_position(self._type, field, "project()") for field in field_indexes]
        types = [self._type.get_field_types()[position] for position in positions]
        if isinstance(self._type, RowTypeInfo):
            names = [self._type.get_field_names()[position] for position in positions]
            declared: TypeInformation = Types.ROW_NAMED(names, types)
        else:
            declared = Types.TUPLE(types)
        operator = ProjectOperator(positions, arrow_format(declared))
        return self._transform("Projection", operator, declared)

    def window_all(self, window_assigner: WindowAssigner[Any, Any]) -> AllWindowedStream:
        """Put all records into windows, in one subtask."""
        from tidegate.datastream.windowed_stream import AllWindowedStream

        return AllWindowedStream(self, window_assigner)

    def count_window_all(self, size: int, slide: int = 0) -> AllWindowedStream:
        """Windows of `size` records; with `slide`, a window starts every `slide` records."""
        if slide == 0:
            return self.window_all(CountTumblingWindowAssigner(size))
        return self.window_all(CountSlidingWindowAssigner(size, slide))

    # --- several streams ------------------------------------------------------------------------

    def union(self, *streams: DataStream) -> DataStream:
        """Unite streams of one type; the order between them is undefined."""
        for other in streams:
            self._check_same_environment(other)
            if other.get_type() != self.get_type():
                raise GraphError(
                    f"cannot unite streams of different types: {self.get_type()} and "
                    f"{other.get_type()}; map one of them to the other's type"
                )
        united = (*self._upstreams, *(up for other in streams for up in other._upstreams))
        return DataStream(self._environment, united, self._type)

    @overload
    def connect(self, ds: DataStream) -> ConnectedStreams: ...

    @overload
    def connect(self, ds: BroadcastStream) -> BroadcastConnectedStream: ...

    def connect(
        self, ds: DataStream | BroadcastStream
    ) -> ConnectedStreams | BroadcastConnectedStream:
        """Connect with a stream of any type, for functions that process both."""
        from tidegate.datastream.broadcast_stream import BroadcastConnectedStream, BroadcastStream
        from tidegate.datastream.connected_streams import ConnectedStreams

        if isinstance(ds, BroadcastStream):
            self._check_same_environment(ds.input_stream)
            return BroadcastConnectedStream(self, ds)
        self._check_same_environment(ds)
        return ConnectedStreams(self, ds)

    def join(self, other: DataStream) -> JoinedStreams:
        """Join every pair of records that have the same key and window.

        stream.join(other).where(key).equal_to(key).window(assigner).apply(function)
        """
        from tidegate.datastream.joined_streams import JoinedStreams

        return JoinedStreams(self, other)

    def co_group(self, other: DataStream) -> CoGroupedStreams:
        """Group the records of both streams by key and window, even if one stream has none.

        stream.co_group(other).where(key).equal_to(key).window(assigner).apply(function)
        """
        from tidegate.datastream.joined_streams import CoGroupedStreams

        return CoGroupedStreams(self, other)

    def get_side_output(self, output_tag: OutputTag) -> DataStream:
        """The side output with this tag."""
        operator = self._operator("get_side_output")
        tag, declared = output_tag.tag_id, output_tag.type_info
        known = operator.side_types.setdefault(tag, declared)
        if known != declared:
            raise GraphError(
                f"side output {tag!r} of {operator.name!r} is read as {known} and as {declared}: "
                "use one OutputTag for both"
            )
        side_formats = getattr(operator.operator, "side_formats", None)
        if side_formats is None:
            raise GraphError(
                f"{operator.name!r} has no side outputs: send to {tag!r} from a process function"
            )
        side_formats[tag] = arrow_format(declared)
        return DataStream(self._environment, (Upstream(operator, side_tag=tag),), declared)

    # --- partitioning ---------------------------------------------------------------------------

    def key_by(self, key_selector: KeyLike, key_type: TypeLike | None = None) -> KeyedStream:
        """Partition by key, so that all records of a key share state.

        The key is a function, a field, or a tuple of fields. On a typed stream, fields and simple
        functions such as `lambda r: r.name` are evaluated by column, without a Python call per
        record.
        """
        from tidegate.datastream.keyed_stream import KeyedStream

        key = declared_key(key_selector, self._type)
        upstreams = self._partitioned(ByKeyGroup(key))
        return KeyedStream(self._environment, upstreams, self._type, key, declared_type(key_type))

    def rebalance(self) -> DataStream:
        """Distribute the records round-robin to all subtasks of the next operator."""
        return self._with(Rebalance())

    def rescale(self) -> DataStream:
        """Distribute the records round-robin to a subset of the next subtasks."""
        return self._with(Rescale())

    def shuffle(self) -> DataStream:
        """Send every record to a random subtask of the next operator."""
        return self._with(Shuffle())

    def forward(self) -> DataStream:
        """Send the records to the subtask with the same index."""
        return self._with(Forward())

    @overload
    def broadcast(self) -> DataStream: ...

    @overload
    def broadcast(
        self,
        broadcast_state_descriptor: MapStateDescriptor,
        *other_broadcast_state_descriptors: MapStateDescriptor,
    ) -> BroadcastStream: ...

    def broadcast(
        self,
        broadcast_state_descriptor: MapStateDescriptor | None = None,
        *other_broadcast_state_descriptors: MapStateDescriptor,
    ) -> DataStream | BroadcastStream:
        """Send every record to all subtasks of the next operator.

        With descriptors, connect the result to another stream: the function keeps the broadcast
        records in these states, which are the same in every subtask.
        """
        from tidegate.datastream.broadcast_stream import BroadcastStream

        stream = self._with(Broadcast())
        if broadcast_state_descriptor is None:
            return stream
        descriptors = (broadcast_state_descriptor, *other_broadcast_state_descriptors)
        return BroadcastStream(stream, descriptors)

    def global_(self) -> DataStream:
        """Send all records to the first subtask of the next operator."""
        return self._with(Global())

    def partition_custom(
        self, partitioner: Partitioner | Callable[[Any, int], int], key_selector: KeyLike
    ) -> DataStream:
        """Send a record to the subtask that `partitioner(key, number of subtasks)` returns."""
        choose = bound_method(partitioner, Partitioner, "partition")
        key = declared_key(key_selector, self._type)
        if isinstance(partitioner, Partitioner):
            key = KeySelection(OpenedWithPartitioner(key, partitioner))
        return self._with(Custom(choose, key))

    # --- sinks ----------------------------------------------------------------------------------

    def print(self, sink_identifier: str | None = None) -> DataStreamSink:
        """Print every record to the driver's standard output, with a prefix if one is given."""
        return self._sink("Print to Std. Out", SinkOperator(PrintSink(sink_identifier)))

    def add_sink(self, sink_func: SinkLike) -> DataStreamSink:
        """Pass every record to a sink function, a plain function, or a Sink."""
        if isinstance(sink_func, Sink):
            return self.sink_to(sink_func)
        return self._sink("Unnamed", sink_operator(sink_func, arrow_format(self._type)))

    def sink_to(self, sink: Sink) -> DataStreamSink:
        """Write the records to a sink."""
        if not isinstance(sink, Sink):
            raise TypeError(f"sink_to() needs a Sink, got {sink!r}: use add_sink() for functions")
        return self._sink(type(sink).__name__, sink_operator(sink, arrow_format(self._type)))

    def sink_to_table(
        self, table: str, mode: str = "append", partition_by: str | Sequence[str] = ()
    ) -> DataStreamSink:
        """Append the rows of this typed stream to a Spark table, exactly once.

        Args:
            table: the name of a table, such as `shop.sales`, which is created if it does not exist;
                or a directory, recognised by a "/", that `spark.read.parquet` reads.
            mode: what a job that starts fresh does with existing rows: "append", "overwrite", or
                "error".
            partition_by: the columns whose values name the directories of the rows.
        """
        columns = [partition_by] if isinstance(partition_by, str) else list(partition_by)
        sink = self._environment._table_sink(self, str(table), mode, columns)
        return self.sink_to(sink).name(f"Table {table}")

    @overload
    def execute_and_collect(
        self, job_execution_name: str | None = None, limit: None = None
    ) -> CloseableIterator: ...

    @overload
    def execute_and_collect(
        self, job_execution_name: str | None = None, *, limit: int
    ) -> list[Any]: ...

    def execute_and_collect(
        self, job_execution_name: str | None = None, limit: int | None = None
    ) -> CloseableIterator | list[Any]:
        """Run the program and return the records of this stream as they arrive.

        Close the iterator, preferably with `with`: this cancels a job that still runs. With a
        limit, the method returns a list of at most this many records and cancels the job.
        """
        records = self._environment._collect(self, job_execution_name)
        if limit is None:
            return records
        with records:
            return records.take(limit)

    def cache(self) -> CachedDataStream:
        """Compute this bounded stream only once, in the first job that reads it."""
        from tidegate.datastream.cached_data_stream import CachedDataStream

        return CachedDataStream(self)

    def to_dataframe(self) -> pyspark.sql.DataFrame:
        """Run the program to its end and return this bounded, typed stream as a Spark DataFrame."""
        return self._environment._to_dataframe(self)

    # --- what the stream is ---------------------------------------------------------------------

    def get_type(self) -> TypeInformation:
        """The declared type, or that of pickled objects."""
        return Types.PICKLED_BYTE_ARRAY() if self._type is None else self._type

    def get_execution_environment(self) -> StreamExecutionEnvironment:
        """The environment that the stream belongs to."""
        return self._environment

    def get_execution_config(self) -> ExecutionConfig:
        """The configuration of the stream's environment."""
        return self._environment.get_config()

    def _operator(self, call: str) -> Transformation:
        plain = len(self._upstreams) == 1 and self._upstreams[0].partitioning is None
        if not plain or self._upstreams[0].side_tag is not None:
            raise GraphError(
                f"{call}() configures one operator, but this stream is united, partitioned or a "
                "side output: call it on the operator before or after"
            )
        return self._upstreams[0].transformation

    def _with(self, partitioning: Partitioning) -> DataStream:
        return DataStream(self._environment, self._partitioned(partitioning), self._type)

    def _partitioned(self, partitioning: Partitioning) -> tuple[Upstream, ...]:
        return tuple(replace(upstream, partitioning=partitioning) for upstream in self._upstreams)

    def _transform(
        self, name: str, operator: Operator, type_info: TypeInformation | None
    ) -> DataStream:
        transformation = self._add(name, operator, type_info)
        return DataStream(self._environment, (Upstream(transformation),), type_info)

    def _sink(self, name: str, operator: Operator) -> DataStreamSink:
        transformation = self._add(name, operator, None)
        transformation.is_sink = True
        return DataStreamSink(transformation)

    def _run_beside(self, sink: DataStreamSink) -> None:
        """Chain a sink to the operator, so that it receives the records in order."""
        upstream = self._upstreams[0]
        if len(self._upstreams) == 1 and upstream.partitioning is None:
            sink._transformation.parallelism = upstream.transformation.parallelism

    def _add(
        self, name: str, operator: Operator, type_info: TypeInformation | None
    ) -> Transformation:
        transformation = Transformation(
            name=name, operator=operator, inputs=self._upstreams, output_type=type_info
        )
        self._environment._register(transformation)
        return transformation

    def _check_same_environment(self, other: object) -> None:
        if not isinstance(other, DataStream):
            raise TypeError(f"expected a DataStream, got {other!r}")
        if other._environment is not self._environment:
            raise GraphError("both streams must come from the same StreamExecutionEnvironment")

    if not TYPE_CHECKING:  # a type checker would accept every name as a method

        def __getattr__(self, name: str) -> NoReturn:
            reason = _NOT_THERE.get(name)
            said = "" if reason is None else f": {reason}"
            raise AttributeError(
                f"{type(self).__name__!r} object has no attribute {name!r}{said}",
                name=name,
                obj=self,
            )

    def __repr__(self) -> str:
        names = ", ".join(repr(upstream.transformation.name) for upstream in self._upstreams)
        return f"<{type(self).__name__} of {self.get_type()} from {names}>"


_ELSEWHERE = {
    "AllWindowedStream": "windowed_stream",
    "BroadcastConnectedStream": "broadcast_stream",
    "BroadcastStream": "broadcast_stream",
    "CachedDataStream": "cached_data_stream",
    "CloseableIterator": "execution.closeable_iterator",
    "ConnectedStreams": "connected_streams",
    "KeyedStream": "keyed_stream",
    "WindowedStream": "windowed_stream",
}
"""Classes that PyFlink has in this module, and where they are."""


if not TYPE_CHECKING:  # a type checker would accept every name

    def __getattr__(name: str) -> Any:
        if name not in _ELSEWHERE:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        module = importlib.import_module(f"tidegate.datastream.{_ELSEWHERE[name]}")
        return getattr(module, name)
