"""`ConnectedStreams`: two streams of any types, for functions that see both."""

from __future__ import annotations

from dataclasses import replace

from tidegate.datastream.data_stream import DataStream
from tidegate.datastream.declared_types import KeyLike, TypeLike, declared_type, format_of
from tidegate.datastream.keyed_stream import KeyedStream
from tidegate.graph.logical import Transformation, Upstream
from tidegate.operators.base import Operator
from tidegate.operators.co import CoFlatMapOperator, CoMapOperator, CoProcessOperator
from tidegate.operators.functions import (
    CoFlatMapFunction,
    CoMapFunction,
    CoProcessFunction,
    KeyedCoProcessFunction,
)
from tidegate.operators.keyed import (
    KeyedCoFlatMapOperator,
    KeyedCoMapOperator,
    KeyedCoProcessOperator,
)
from tidegate.state.keys import KeySelection
from tidegate.types.typeinfo import TypeInformation


class ConnectedStreams:
    """Two streams; where both are keyed, records of equal keys share the function's state."""

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
        """One result for every record of either stream, none where the function returns None."""
        declared = declared_type(output_type)
        keys = self._keys()
        if keys is None:
            return self._transform("Co-Map", CoMapOperator(func, format_of(declared)), declared)
        operator = KeyedCoMapOperator(func, *keys, format_of(declared))
        return self._transform("Co-Map", operator, declared)

    def flat_map(self, func: CoFlatMapFunction, output_type: TypeLike | None = None) -> DataStream:
        """Any number of results for every record of either stream."""
        declared = declared_type(output_type)
        keys = self._keys()
        if keys is None:
            operator: Operator = CoFlatMapOperator(func, format_of(declared))
        else:
            operator = KeyedCoFlatMapOperator(func, *keys, format_of(declared))
        return self._transform("Co-Flat Map", operator, declared)

    def process(
        self,
        func: CoProcessFunction | KeyedCoProcessFunction,
        output_type: TypeLike | None = None,
    ) -> DataStream:
        """Any number of results for every record of either stream, and side outputs."""
        declared = declared_type(output_type)
        keys = self._keys()
        if keys is not None:
            operator: Operator = KeyedCoProcessOperator(func, *keys, format_of(declared))
            return self._transform("Keyed Co-Process", operator, declared)
        if isinstance(func, KeyedCoProcessFunction):
            raise TypeError(
                f"{type(func).__name__} is a KeyedCoProcessFunction, but the connected streams "
                "have no keys: call key_by(key1, key2) before process()"
            )
        operator = CoProcessOperator(func, format_of(declared))
        return self._transform("Co-Process", operator, declared)

    def _keys(self) -> tuple[KeySelection, KeySelection] | None:
        if isinstance(self.stream1, KeyedStream) and isinstance(self.stream2, KeyedStream):
            return self.stream1._key, self.stream2._key
        return None

    def _transform(
        self, name: str, operator: Operator, type_info: TypeInformation | None
    ) -> DataStream:
        environment = self.stream1.get_execution_environment()
        second = tuple(replace(upstream, input_index=1) for upstream in self.stream2._upstreams)
        transformation = Transformation(
            name=name,
            operator=operator,
            inputs=(*self.stream1._upstreams, *second),
            output_type=type_info,
            is_keyed=self._keys() is not None,
        )
        environment._register(transformation)
        return DataStream(environment, (Upstream(transformation),), type_info)
