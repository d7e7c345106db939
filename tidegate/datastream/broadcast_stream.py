"""`BroadcastStream`: a stream that every subtask receives, and the state that it updates."""

from __future__ import annotations

from tidegate.core.errors import GraphError
from tidegate.datastream.connected_streams import two_input_stream
from tidegate.datastream.data_stream import DataStream
from tidegate.datastream.execution.declared_types import TypeLike, declared_type
from tidegate.datastream.keyed_stream import KeyedStream
from tidegate.operators.base import Operator
from tidegate.operators.functions import BroadcastProcessFunction, KeyedBroadcastProcessFunction
from tidegate.operators.two_inputs.broadcast import (
    BroadcastProcessOperator,
    KeyedBroadcastProcessOperator,
)
from tidegate.state.descriptors import MapStateDescriptor
from tidegate.types.arrow import arrow_format


class BroadcastStream:
    """The result of `DataStream.broadcast(descriptor, ...)`; it can only be connected."""

    def __init__(
        self,
        input_stream: DataStream,
        broadcast_state_descriptors: tuple[MapStateDescriptor, ...],
    ) -> None:
        seen: set[str] = set()
        for descriptor in broadcast_state_descriptors:
            if not isinstance(descriptor, MapStateDescriptor):
                raise TypeError(f"broadcast state is a map, but got {descriptor!r}")
            if descriptor.ttl_config is not None:
                raise GraphError(
                    f"broadcast state {descriptor.name!r} cannot have a time to live: it would "
                    "expire differently in every subtask; remove entries with broadcast records"
                )
            if descriptor.name in seen:
                raise GraphError(
                    f"two broadcast states are named {descriptor.name!r}: give each its own name"
                )
            seen.add(descriptor.name)
        self.input_stream = input_stream
        self.broadcast_state_descriptors = broadcast_state_descriptors


class BroadcastConnectedStream:
    """A stream, keyed or not, connected with a BroadcastStream."""

    def __init__(self, non_broadcast_stream: DataStream, broadcast_stream: BroadcastStream) -> None:
        self.non_broadcast_stream = non_broadcast_stream
        self.broadcast_stream = broadcast_stream
        self.broadcast_state_descriptors = broadcast_stream.broadcast_state_descriptors

    def process(
        self,
        func: BroadcastProcessFunction | KeyedBroadcastProcessFunction,
        output_type: TypeLike | None = None,
    ) -> DataStream:
        """Any number of results per record of either stream; side outputs are possible."""
        stream = self.non_broadcast_stream
        other = self.broadcast_stream.input_stream
        descriptors = self.broadcast_state_descriptors
        declared = declared_type(output_type)
        operator: Operator
        if isinstance(stream, KeyedStream):
            if not isinstance(func, KeyedBroadcastProcessFunction):
                raise TypeError(
                    f"the stream is keyed, so process() needs a KeyedBroadcastProcessFunction, got "
                    f"{func!r}"
                )
            operator = KeyedBroadcastProcessOperator(
                func, stream._key, descriptors, arrow_format(declared)
            )
            name = "Keyed-Co-Process-Broadcast"
        else:
            if not isinstance(func, BroadcastProcessFunction):
                raise TypeError(
                    f"the stream has no key, so process() needs a BroadcastProcessFunction, got "
                    f"{func!r}: call key_by() before connect(), or use another function"
                )
            operator = BroadcastProcessOperator(func, descriptors, arrow_format(declared))
            name = "Co-Process-Broadcast"
        is_keyed = isinstance(stream, KeyedStream)
        return two_input_stream(stream, other, name, operator, declared, is_keyed=is_keyed)
