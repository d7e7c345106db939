"""`AsyncDataStream`: applies an `AsyncFunction` to a stream."""

from __future__ import annotations

import inspect
from typing import Any, Literal

from tidegate.core.durations import DurationLike, as_milliseconds
from tidegate.core.errors import ConfigError
from tidegate.datastream.data_stream import DataStream
from tidegate.datastream.execution.declared_types import TypeLike, declared_type
from tidegate.graph.logical import ChainingStrategy
from tidegate.operators.async_io.contracts import AsyncFunction, AsyncRetryStrategy
from tidegate.operators.async_io.operator import AsyncWaitOperator
from tidegate.operators.async_io.retries import NO_RETRY_STRATEGY
from tidegate.types.arrow import arrow_format


class AsyncDataStream:
    """Applies requests to other systems to a stream."""

    @staticmethod
    def unordered_wait(
        data_stream: DataStream,
        async_function: AsyncFunction[Any, Any],
        timeout: DurationLike,
        capacity: int = 100,
        output_type: TypeLike | None = None,
    ) -> DataStream:
        """Emit results as they arrive; none overtakes a watermark.

        Args:
            data_stream: the records to send requests for.
            async_function: sends a request and returns its results.
            timeout: the limit for a request; 0 for no limit.
            capacity: the most concurrent requests of a subtask.
            output_type: of the results.
        """
        given = data_stream, async_function, timeout, NO_RETRY_STRATEGY, capacity, output_type
        return _wait(*given, "unordered")

    @staticmethod
    def unordered_wait_with_retry(
        data_stream: DataStream,
        async_function: AsyncFunction[Any, Any],
        timeout: DurationLike,
        async_retry_strategy: AsyncRetryStrategy[Any],
        capacity: int = 100,
        output_type: TypeLike | None = None,
    ) -> DataStream:
        """Like `unordered_wait`; `timeout` covers all attempts of a request."""
        given = data_stream, async_function, timeout, async_retry_strategy, capacity, output_type
        return _wait(*given, "unordered")

    @staticmethod
    def ordered_wait(
        data_stream: DataStream,
        async_function: AsyncFunction[Any, Any],
        timeout: DurationLike,
        capacity: int = 100,
        output_type: TypeLike | None = None,
    ) -> DataStream:
        """Emit results in the order of their records; otherwise like `unordered_wait`."""
        given = data_stream, async_function, timeout, NO_RETRY_STRATEGY, capacity, output_type
        return _wait(*given, "ordered")

    @staticmethod
    def ordered_wait_with_retry(
        data_stream: DataStream,
        async_function: AsyncFunction[Any, Any],
        timeout: DurationLike,
        async_retry_strategy: AsyncRetryStrategy[Any],
        capacity: int = 100,
        output_type: TypeLike | None = None,
    ) -> DataStream:
        """Like `ordered_wait`; `timeout` covers all attempts of a request."""
        given = data_stream, async_function, timeout, async_retry_strategy, capacity, output_type
        return _wait(*given, "ordered")


def _wait(
    stream: DataStream,
    function: AsyncFunction[Any, Any],
    timeout: DurationLike,
    strategy: AsyncRetryStrategy[Any],
    capacity: int,
    output_type: TypeLike | None,
    order: Literal["ordered", "unordered"],
) -> DataStream:
    if not isinstance(stream, DataStream):
        raise TypeError(f"expected a DataStream, got {stream!r}")
    if not isinstance(function, AsyncFunction):
        raise TypeError(f"expected an AsyncFunction, got {function!r}")
    if not inspect.iscoroutinefunction(function.async_invoke):
        name = type(function).__name__
        raise TypeError(f"{name}.async_invoke() is not a coroutine: declare it with 'async def'")
    if not isinstance(strategy, AsyncRetryStrategy):
        raise TypeError(f"expected an AsyncRetryStrategy, got {strategy!r}")
    if capacity < 1:
        raise ConfigError("capacity", capacity, "give a number of requests above zero")
    milliseconds = as_milliseconds(timeout)
    if milliseconds <= 0 and strategy is not NO_RETRY_STRATEGY:
        raise ConfigError("timeout", timeout, "give a time above zero for requests with retries")
    declared = declared_type(output_type)
    operator = AsyncWaitOperator(
        function,
        strategy,
        order=order,
        timeout_seconds=milliseconds / 1000 if milliseconds > 0 else None,
        capacity=capacity,
        format=arrow_format(declared),
    )
    results = stream._transform("async wait operator", operator, declared)
    # Only the head of a chain can end later than its input.
    results._operator("async wait operator").chaining = ChainingStrategy.HEAD
    return results
