"""The contracts that user code implements, under PyFlink's names.

A function is built in the driver, pickled, and opened once in every subtask. A plain callable is
accepted wherever one of these is expected; `bound_method` converts between them.

Functions that may return several results return any iterable, or None for no result; they are
usually generators. Process functions send a value to a side output by `yield tag, value`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from tidegate.operators.function_contexts import (
    ContextBase,
    KeyedContextBase,
    OnTimerContextBase,
    TimeDomain,
    TimerService,
)
from tidegate.operators.output_tag import OutputTag
from tidegate.operators.runtime_context import KeyedStateStore, RuntimeContext
from tidegate.state.descriptors import MapStateDescriptor, StateDescriptor
from tidegate.state.handles import BroadcastState, ReadOnlyBroadcastState

__all__ = [
    "AggregateFunction",
    "BaseBroadcastProcessFunction",
    "BroadcastProcessFunction",
    "CoFlatMapFunction",
    "CoMapFunction",
    "CoProcessFunction",
    "FilterFunction",
    "FlatMapFunction",
    "Function",
    "KeySelector",
    "KeyedBroadcastProcessFunction",
    "KeyedCoProcessFunction",
    "KeyedProcessFunction",
    "KeyedStateFunction",
    "KeyedStateStore",
    "MapFunction",
    "OutputTag",
    "Partitioner",
    "ProcessFunction",
    "ReduceFunction",
    "RuntimeContext",
    "SinkFunction",
    "SourceFunction",
    "TimeDomain",
    "TimerService",
    "bound_method",
]


class Function(ABC):  # noqa: B024 - a base for contracts; open and close are optional
    """Base class of all user functions."""

    def __class_getitem__(cls, parameters: Any) -> type[Function]:
        """PyFlink's functions are generic: `KeyedProcessFunction[str, int, int]` is the class."""
        return cls

    def open(self, runtime_context: RuntimeContext) -> None:
        """Called once per subtask, before the first record. Connect and get state here."""

    def close(self) -> None:
        """Called once when the subtask ends, even after a failure."""


class MapFunction(Function):
    """One result for every record."""

    @abstractmethod
    def map(self, value: Any) -> Any:
        """The result for a record."""


class FlatMapFunction(Function):
    """Any number of results for every record."""

    @abstractmethod
    def flat_map(self, value: Any) -> Any:
        """The results for a record, as an iterable."""


class FilterFunction(Function):
    """Keeps the records for which it returns a true value."""

    @abstractmethod
    def filter(self, value: Any) -> bool:
        """Whether the record stays in the stream."""


class ReduceFunction(Function):
    """Combines two values of the same type into one."""

    @abstractmethod
    def reduce(self, value1: Any, value2: Any) -> Any:
        """Combine two values into one."""


class AggregateFunction(Function):
    """Folds values into an accumulator, from which the result is read."""

    @abstractmethod
    def create_accumulator(self) -> Any:
        """A new accumulator, for a key that has none."""

    @abstractmethod
    def add(self, value: Any, accumulator: Any) -> Any:
        """Returns the accumulator with the value added; may change and return the same object."""

    @abstractmethod
    def get_result(self, accumulator: Any) -> Any:
        """The result of an accumulator."""

    def merge(self, acc_a: Any, acc_b: Any) -> Any:
        """Merges two accumulators; only called for merging windows."""
        raise NotImplementedError(f"{type(self).__name__} does not define merge()")


class KeySelector(Function):
    """The key of a record; the same record must give the same key in every process."""

    @abstractmethod
    def get_key(self, value: Any) -> Any:
        """The key of a record."""


class Partitioner(Function):
    """Chooses the target subtask, from 0 up to `num_partitions` - 1."""

    @abstractmethod
    def partition(self, key: Any, num_partitions: int) -> int:
        """The target subtask for a key."""


class ProcessFunction(Function):
    """Any number of results per record, to the main output and to side outputs."""

    class Context(ContextBase):
        """Valid only during the call it is given to."""

    @abstractmethod
    def process_element(self, value: Any, ctx: ProcessFunction.Context) -> Any:
        """Process a record."""


class KeyedProcessFunction(Function):
    """Like ProcessFunction, with the state and the timers of the record's key."""

    class Context(KeyedContextBase):
        """Valid only during the call it is given to."""

    class OnTimerContext(OnTimerContextBase):
        """Valid only during the call it is given to."""

    @abstractmethod
    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Any:
        """Process a record; its key is the current one."""

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Any:
        """A timer of the current key is due; results as in `process_element`."""


class CoMapFunction(Function):
    """One result for every record of either stream."""

    @abstractmethod
    def map1(self, value: Any) -> Any:
        """The result for a record of the first stream."""

    @abstractmethod
    def map2(self, value: Any) -> Any:
        """The result for a record of the second stream."""


class CoFlatMapFunction(Function):
    """Any number of results for every record of either stream."""

    @abstractmethod
    def flat_map1(self, value: Any) -> Any:
        """The results for a record of the first stream."""

    @abstractmethod
    def flat_map2(self, value: Any) -> Any:
        """The results for a record of the second stream."""


class CoProcessFunction(Function):
    """ProcessFunction on two streams."""

    class Context(ContextBase):
        """Valid only during the call it is given to."""

    @abstractmethod
    def process_element1(self, value: Any, ctx: CoProcessFunction.Context) -> Any:
        """Process a record of the first stream."""

    @abstractmethod
    def process_element2(self, value: Any, ctx: CoProcessFunction.Context) -> Any:
        """Process a record of the second stream."""


class KeyedCoProcessFunction(Function):
    """KeyedProcessFunction on two streams with the same key and shared state."""

    class Context(KeyedContextBase):
        """Valid only during the call it is given to."""

    class OnTimerContext(OnTimerContextBase):
        """Valid only during the call it is given to."""

    @abstractmethod
    def process_element1(self, value: Any, ctx: KeyedCoProcessFunction.Context) -> Any:
        """Process a record of the first stream."""

    @abstractmethod
    def process_element2(self, value: Any, ctx: KeyedCoProcessFunction.Context) -> Any:
        """Process a record of the second stream."""

    def on_timer(self, timestamp: int, ctx: KeyedCoProcessFunction.OnTimerContext) -> Any:
        """A timer of the current key is due; results as in `process_element1`."""


class BaseBroadcastProcessFunction(Function):
    """The base of both broadcast functions: contexts with access to broadcast state."""

    class BaseContext(ABC):
        """Valid only during the call it is given to."""

        @abstractmethod
        def timestamp(self) -> int | None: ...

        @abstractmethod
        def current_processing_time(self) -> int: ...

        @abstractmethod
        def current_watermark(self) -> int: ...

    class Context(BaseContext):
        """For broadcast records: may change the state, in the same way in every subtask."""

        @abstractmethod
        def get_broadcast_state(
            self, state_descriptor: MapStateDescriptor
        ) -> BroadcastState[Any, Any]: ...

    class ReadOnlyContext(BaseContext):
        """For all other records: may only read the state."""

        @abstractmethod
        def get_broadcast_state(
            self, state_descriptor: MapStateDescriptor
        ) -> ReadOnlyBroadcastState[Any, Any]: ...


class BroadcastProcessFunction(BaseBroadcastProcessFunction):
    """Processes a stream together with a broadcast stream.

    The order between the two is undefined: store records that must wait for a broadcast record.
    """

    @abstractmethod
    def process_element(self, value: Any, ctx: BaseBroadcastProcessFunction.ReadOnlyContext) -> Any:
        """Process a record of the stream that is not broadcast."""

    @abstractmethod
    def process_broadcast_element(
        self, value: Any, ctx: BaseBroadcastProcessFunction.Context
    ) -> Any:
        """Update the broadcast state from the record and the state only.

        All subtasks then make the same changes, whatever the order of the other stream.
        """


class KeyedStateFunction(Function):
    """Called by `apply_to_keyed_state` for the state of each key."""

    @abstractmethod
    def process(self, key: Any, state: Any) -> None:
        """Process the state of one key."""


class KeyedBroadcastProcessFunction(BaseBroadcastProcessFunction):
    """Processes a keyed stream together with a broadcast stream."""

    class Context(BaseBroadcastProcessFunction.Context):
        """For broadcast records, which have no key."""

        @abstractmethod
        def apply_to_keyed_state(
            self,
            state_descriptor: StateDescriptor,
            function: KeyedStateFunction | Callable[[Any, Any], None],
        ) -> None:
            """Call `function(key, state)` for every key of the subtask that has such a state."""

    class ReadOnlyContext(BaseBroadcastProcessFunction.ReadOnlyContext, KeyedContextBase):
        """Valid only during the call it is given to."""

    class OnTimerContext(ReadOnlyContext):
        """Valid only during the call it is given to."""

        @abstractmethod
        def time_domain(self) -> TimeDomain: ...

    @abstractmethod
    def process_element(
        self, value: Any, ctx: KeyedBroadcastProcessFunction.ReadOnlyContext
    ) -> Any:
        """Process a record of the keyed stream."""

    @abstractmethod
    def process_broadcast_element(
        self, value: Any, ctx: KeyedBroadcastProcessFunction.Context
    ) -> Any:
        """As in BroadcastProcessFunction; use `apply_to_keyed_state` for keyed state."""

    def on_timer(self, timestamp: int, ctx: KeyedBroadcastProcessFunction.OnTimerContext) -> Any:
        """A timer of the current key is due; results as in `process_element`."""


class SourceFunction(Function):
    """A source written as a loop.

    After a failure it starts from the beginning, unless it is also a CheckpointedFunction. Then
    emit a record and change what `snapshot_state` reads under the checkpoint lock:

        with ctx.get_checkpoint_lock():
            ctx.collect(self.position)
            self.position += 1
    """

    class SourceContext(ABC):
        """Receives the records of the loop. Only the thread that calls `run` may use it."""

        @abstractmethod
        def get_checkpoint_lock(self) -> AbstractContextManager[None]:
            """Held while a snapshot is taken; do not wait for anything while you hold it."""

        @abstractmethod
        def collect(self, value: Any) -> None:
            """Emit a record; blocks while the job cannot take more."""

        @abstractmethod
        def collect_with_timestamp(self, value: Any, timestamp: int) -> None: ...

    @abstractmethod
    def run(self, ctx: SourceFunction.SourceContext) -> None:
        """Emit records until there are no more, or `cancel` is called. Runs on its own thread."""

    @abstractmethod
    def cancel(self) -> None:
        """Make `run` return soon. Called on another thread."""


class SinkFunction(Function):
    """Takes the records one at a time."""

    class Context(ABC):
        """Valid only during the call it is given to."""

        @abstractmethod
        def current_processing_time(self) -> int: ...

        @abstractmethod
        def current_watermark(self) -> int: ...

        @abstractmethod
        def timestamp(self) -> int | None: ...

    @abstractmethod
    def invoke(self, value: Any, context: SinkFunction.Context) -> None:
        """Write a record."""


def bound_method(function: Any, contract: type[Function], method: str) -> Callable[..., Any]:
    """The callable for every record: the contract's method, or the plain callable itself."""
    if isinstance(function, contract):
        bound: Callable[..., Any] = getattr(function, method)
        return bound
    if isinstance(function, type) and issubclass(function, Function):
        raise TypeError(f"{function.__name__} is a class: pass an instance, {function.__name__}()")
    if isinstance(function, Function) or not callable(function):
        raise TypeError(
            f"expected a {contract.__name__} or a function, got {type(function).__name__} "
            f"({function!r})"
        )
    return function  # type: ignore[no-any-return]
