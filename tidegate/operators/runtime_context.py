"""What a function receives when it is opened."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from typing import Any, TypeVar

from tidegate.core.errors import GraphError
from tidegate.operators.accumulators import (
    DoubleCounter,
    FunctionAccumulator,
    Histogram,
    IntCounter,
    LongCounter,
)
from tidegate.operators.base import OperatorContext
from tidegate.operators.metrics import MetricGroup
from tidegate.state.descriptors import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateDescriptor,
    ValueStateDescriptor,
)
from tidegate.state.handles import (
    AggregatingState,
    ListState,
    MapState,
    ReducingState,
    ValueState,
)

_Kind = TypeVar("_Kind", bound=FunctionAccumulator)
_log = logging.getLogger("tidegate.state")


class KeyedStateStore(ABC):
    """Handles to the state of the current key."""

    @abstractmethod
    def get_state(self, state_descriptor: ValueStateDescriptor) -> ValueState[Any]:
        """The value state of this name."""

    @abstractmethod
    def get_list_state(self, state_descriptor: ListStateDescriptor) -> ListState[Any]:
        """The list state of this name."""

    @abstractmethod
    def get_map_state(self, state_descriptor: MapStateDescriptor) -> MapState[Any, Any]:
        """The map state of this name."""

    @abstractmethod
    def get_reducing_state(self, state_descriptor: ReducingStateDescriptor) -> ReducingState[Any]:
        """The reducing state of this name."""

    @abstractmethod
    def get_aggregating_state(
        self, state_descriptor: AggregatingStateDescriptor
    ) -> AggregatingState[Any, Any]:
        """The aggregating state of this name."""


class RuntimeContext(KeyedStateStore):
    """Identity of the subtask, its metrics and, on a keyed stream, its state."""

    def __init__(
        self, context: OperatorContext, keyed_state: KeyedStateStore | None = None
    ) -> None:
        self._context = context
        self._keyed_state = keyed_state
        self._asked: dict[str, StateDescriptor] = {}
        self._has_warned = False

    def get_task_name(self) -> str:
        """The name of the operator."""
        return self._context.name

    def get_number_of_parallel_subtasks(self) -> int:
        """The parallelism of the operator."""
        return self._context.parallelism

    def get_max_number_of_parallel_subtasks(self) -> int:
        """The number of key groups."""
        return self._context.max_parallelism

    def get_index_of_this_subtask(self) -> int:
        """From 0 up to the parallelism - 1."""
        return self._context.subtask

    def get_attempt_number(self) -> int:
        """Number of restarts of the subtask, initially 0."""
        return self._context.attempt - 1

    def get_task_name_with_subtasks(self) -> str:
        """The name with the subtask counted from 1, like "Map (3/6)"."""
        context = self._context
        return f"{context.name} ({context.subtask + 1}/{context.parallelism})"

    def get_job_parameter(self, key: str, default_value: Any = None) -> Any:
        """A parameter of the job, or the default."""
        return self._context.settings.get(key, default_value)

    def get_metrics_group(self) -> MetricGroup:
        """The metrics of the operator."""
        return self._context.metrics

    def add_accumulator(self, name: str, accumulator: FunctionAccumulator) -> None:
        """Add an accumulator; `JobClient.get_accumulators` returns the sum over all subtasks."""
        if name in self._context.accumulators:
            raise ValueError(f"the function already has an accumulator {name!r}")
        self._context.accumulators[name] = accumulator

    def get_accumulator(self, name: str) -> FunctionAccumulator | None:
        """The accumulator of this name; None if there is none."""
        return self._context.accumulators.get(name)

    def get_int_counter(self, name: str) -> IntCounter:
        """The counter of this name, created on first use."""
        return self._accumulator(name, IntCounter)

    def get_long_counter(self, name: str) -> LongCounter:
        """The counter of this name, created on first use."""
        return self._accumulator(name, LongCounter)

    def get_double_counter(self, name: str) -> DoubleCounter:
        """The float counter of this name, created on first use."""
        return self._accumulator(name, DoubleCounter)

    def get_histogram(self, name: str) -> Histogram:
        """The histogram of this name, created on first use."""
        return self._accumulator(name, Histogram)

    def _accumulator(self, name: str, kind: type[_Kind]) -> _Kind:
        found = self._context.accumulators.setdefault(name, kind())
        if not isinstance(found, kind):
            raise ValueError(f"accumulator {name!r} is a {type(found).__name__} already")
        return found

    def get_state(self, state_descriptor: ValueStateDescriptor) -> ValueState[Any]:
        return self._keyed(state_descriptor).get_state(state_descriptor)

    def get_list_state(self, state_descriptor: ListStateDescriptor) -> ListState[Any]:
        return self._keyed(state_descriptor).get_list_state(state_descriptor)

    def get_map_state(self, state_descriptor: MapStateDescriptor) -> MapState[Any, Any]:
        return self._keyed(state_descriptor).get_map_state(state_descriptor)

    def get_reducing_state(self, state_descriptor: ReducingStateDescriptor) -> ReducingState[Any]:
        return self._keyed(state_descriptor).get_reducing_state(state_descriptor)

    def get_aggregating_state(
        self, state_descriptor: AggregatingStateDescriptor
    ) -> AggregatingState[Any, Any]:
        return self._keyed(state_descriptor).get_aggregating_state(state_descriptor)

    def _keyed(self, state_descriptor: StateDescriptor) -> KeyedStateStore:
        if self._keyed_state is None:
            raise GraphError(
                f"operator {self._context.name!r} uses the state "
                f"{state_descriptor.name!r}, but its stream has no key: call key_by() first"
            )
        first = self._asked.setdefault(state_descriptor.name, state_descriptor)
        if first is not state_descriptor and self._context.subtask == 0 and not self._has_warned:
            self._has_warned = True
            _log.warning(
                "operator %r uses two descriptors for the state %r, which then share their values; "
                "rename one if this is not intended",
                self._context.name,
                state_descriptor.name,
            )
        return self._keyed_state
