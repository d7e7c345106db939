"""`ConnectedStreams`: two streams of any types, for functions that process both."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from tidegate.datastream.data_stream import DataStream
from tidegate.datastream.execution.declared_types import KeyLike, TypeLike, declared_type
from tidegate.datastream.keyed_stream import KeyedStream
from tidegate.graph.logical import Transformation, Upstream
from tidegate.operators.base import Operator
from tidegate.operators.checkpointed import (
    CheckpointedFunction,
    CheckpointListener,
    FunctionInitializationContext,
    FunctionSnapshotContext,
)
from tidegate.operators.functions import (
    CoFlatMapFunction,
    CoMapFunction,
    CoProcessFunction,
    KeyedCoProcessFunction,
)
from tidegate.operators.keyed import KeyedFlatMapOperator, KeyedProcessOperator
from tidegate.operators.runtime_context import RuntimeContext
from tidegate.operators.two_inputs.co import CoFlatMapOperator, CoProcessOperator
from tidegate.state.keys.selection import KeySelection
from tidegate.types.arrow import arrow_format
from tidegate.types.typeinfo import TypeInformation


class ConnectedStreams:
    """Two streams; if both are keyed, records with equal keys share state."""

    def __init__(self, stream1: DataStream, stream2: DataStream) -> None:
        self.stream1 = stream1
        self.stream2 = stream2

    def key_by(
        self, key_selector1: KeyLike, key_selector2: KeyLike, key_type: TypeLike | None = None
    ) -> ConnectedStreams:
        """Partition both streams by key."""
        return ConnectedStreams(
            self.stream1.key_by(key_selector1, key_type),
            self.stream2.key_by(key_selector2, key_type),
        )

    def map(self, func: CoMapFunction, output_type: TypeLike | None = None) -> DataStream:
        """One result per record of either stream, or None for no result."""
        if not isinstance(func, CoMapFunction):
            raise TypeError(f"map() on connected streams needs a CoMapFunction, got {func!r}")
        return self.flat_map(_WithoutNone(func), output_type).name("Co-Map")

    def flat_map(self, func: CoFlatMapFunction, output_type: TypeLike | None = None) -> DataStream:
        """Any number of results per record of either stream."""
        if not isinstance(func, CoFlatMapFunction):
            raise TypeError(
                f"flat_map() on connected streams needs a CoFlatMapFunction, got {func!r}"
            )
        declared = declared_type(output_type)
        keys = self._keys()
        if keys is None:
            operator: Operator = CoFlatMapOperator(func, arrow_format(declared))
        else:
            operator = KeyedFlatMapOperator(func, keys, arrow_format(declared))
        return self._transform("Co-Flat Map", operator, declared)

    def process(
        self,
        func: CoProcessFunction | KeyedCoProcessFunction,
        output_type: TypeLike | None = None,
    ) -> DataStream:
        """Any number of results per record of either stream; side outputs are possible."""
        declared = declared_type(output_type)
        keys = self._keys()
        if isinstance(func, KeyedCoProcessFunction):
            if keys is None:
                raise TypeError(
                    f"{type(func).__name__} is a KeyedCoProcessFunction, but the connected streams "
                    "have no keys: call key_by(key1, key2) before process()"
                )
            operator: Operator = KeyedProcessOperator(func, keys, arrow_format(declared))
            return self._transform("Keyed Co-Process", operator, declared)
        return self._transform(
            "Co-Process", CoProcessOperator(func, arrow_format(declared)), declared
        )

    def _keys(self) -> tuple[KeySelection, KeySelection] | None:
        if isinstance(self.stream1, KeyedStream) and isinstance(self.stream2, KeyedStream):
            return self.stream1._key, self.stream2._key
        return None

    def _transform(
        self, name: str, operator: Operator, type_info: TypeInformation | None
    ) -> DataStream:
        is_keyed = self._keys() is not None
        return two_input_stream(
            self.stream1, self.stream2, name, operator, type_info, is_keyed=is_keyed
        )


def two_input_stream(
    stream1: DataStream,
    stream2: DataStream,
    name: str,
    operator: Operator,
    type_info: TypeInformation | None,
    *,
    is_keyed: bool,
) -> DataStream:
    """The output of an operator on two streams."""
    environment = stream1.get_execution_environment()
    second = tuple(replace(upstream, input_index=1) for upstream in stream2._upstreams)
    transformation = Transformation(
        name=name,
        operator=operator,
        inputs=(*stream1._upstreams, *second),
        output_type=type_info,
        is_keyed=is_keyed,
    )
    environment._register(transformation)
    return DataStream(environment, (Upstream(transformation),), type_info)


class _WithoutNone(CoFlatMapFunction, CheckpointedFunction, CheckpointListener):
    """A CoMapFunction that drops results of None, as in PyFlink."""

    def __init__(self, function: CoMapFunction) -> None:
        self.wrapped = function

    def open(self, runtime_context: RuntimeContext) -> None:
        self.wrapped.open(runtime_context)

    def flat_map1(self, value: Any) -> Sequence[Any]:
        result = self.wrapped.map1(value)
        return () if result is None else (result,)

    def flat_map2(self, value: Any) -> Sequence[Any]:
        result = self.wrapped.map2(value)
        return () if result is None else (result,)

    def initialize_state(self, context: FunctionInitializationContext) -> None:
        if isinstance(self.wrapped, CheckpointedFunction):
            self.wrapped.initialize_state(context)

    def snapshot_state(self, context: FunctionSnapshotContext) -> None:
        if isinstance(self.wrapped, CheckpointedFunction):
            self.wrapped.snapshot_state(context)

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        if isinstance(self.wrapped, CheckpointListener):
            self.wrapped.notify_checkpoint_complete(checkpoint_id)

    def notify_checkpoint_aborted(self, checkpoint_id: int) -> None:
        if isinstance(self.wrapped, CheckpointListener):
            self.wrapped.notify_checkpoint_aborted(checkpoint_id)

    def close(self) -> None:
        self.wrapped.close()
