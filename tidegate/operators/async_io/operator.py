"""The async I/O operator: records become requests, whose results are emitted in later steps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from tidegate.core.errors import UserFunctionError
from tidegate.operators.async_io.contracts import AsyncFunction, AsyncRetryStrategy
from tidegate.operators.async_io.event_loop import RequestLoop
from tidegate.operators.async_io.results import (
    Held,
    HeldResults,
    Request,
    ResultsAsTheyCome,
    ResultsInOrder,
)
from tidegate.operators.base import OperatorContext, OperatorSnapshot, Output
from tidegate.operators.poison import DeadLetters
from tidegate.operators.user_code import FunctionOperator
from tidegate.state.descriptors import ListStateDescriptor
from tidegate.stream.batch import Batch, timestamps_of
from tidegate.stream.elements import Barrier, Watermark, WatermarkStatus
from tidegate.types.arrow import ArrowFormat
from tidegate.types.typeinfo import Types

_STATE = ListStateDescriptor("_requests-in-flight", Types.PICKLED_BYTE_ARRAY())
_NOW = 0.0
_ROOM_PER_CAPACITY = 8
"""How many requests may wait per request in progress, so that a step delivers enough."""


@dataclass(frozen=True, slots=True)
class StoredRequest:
    """A record in a checkpoint that is sent again after a restore."""

    value: Any
    timestamp: int | None


@dataclass(frozen=True, slots=True)
class StoredWatermark:
    """A watermark after such records. At another parallelism, it could be too high."""

    timestamp: int
    parallelism: int


class AsyncWaitOperator(FunctionOperator):
    """Sends a request for every record and emits the results in later steps.

    Records beyond the capacity wait in the operator, so it never delays a barrier. `room` limits
    their number: about as many as one step completes.
    """

    _loop: RequestLoop | None = None

    def __init__(
        self,
        function: AsyncFunction[Any, Any],
        strategy: AsyncRetryStrategy[Any],
        *,
        order: Literal["ordered", "unordered"],
        timeout_seconds: float | None,
        capacity: int,
        format: ArrowFormat | None = None,
    ) -> None:
        super().__init__(function, format)
        self._strategy = strategy
        self._is_ordered = order == "ordered"
        self._timeout_seconds = timeout_seconds
        self._capacity = capacity
        self._least_room = _ROOM_PER_CAPACITY * capacity

    def keeps_state(self) -> bool:
        return True

    def open(self, context: OperatorContext, output: Output) -> None:
        self._context = context
        self._held: HeldResults = ResultsInOrder() if self._is_ordered else ResultsAsTheyCome()
        self._most_held = self._least_room
        self._dead_letters = (
            None if context.poison is None else DeadLetters(context, output, context.poison)
        )
        super().open(context, output)
        self._stored = context.operator_state.get_list_state(_STATE)
        if not context.has_ended:
            self._send([found for stored in self._stored.get() for found in self._restored(stored)])

    def call(self, function: Callable[..., Any], *arguments: Any) -> None:
        if self._loop is None:
            self._loop = RequestLoop(
                self.function,
                self._strategy,
                capacity=self._capacity,
                timeout_seconds=self._timeout_seconds,
                name=self._context.name,
                user_code=self.user_code,
                done=self._done,
            )
        self._loop.call(function, *arguments)

    def _done(self, request: Request) -> None:
        self._held.done(request)
        self._context.wake()

    def _restored(self, stored: StoredRequest | StoredWatermark) -> list[Held]:
        if isinstance(stored, StoredRequest):
            return [Request(stored.value, stored.timestamp)]
        is_whole = stored.parallelism == self._context.parallelism
        return [Watermark(stored.timestamp)] if is_whole else []

    def process(self, batch: Batch, input_index: int = 0) -> None:
        stamps = [None] * len(batch) if batch.timestamps is None else batch.timestamps.tolist()
        self._send([Request(*pair) for pair in zip(batch.records, stamps, strict=True)])

    def _send(self, elements: list[Held]) -> None:
        assert self._loop is not None
        for element in elements:
            self._held.add(element)
        self._loop.send(element for element in elements if isinstance(element, Request))

    def on_watermark(self, watermark: Watermark) -> None:
        if len(self._held):
            self._held.add(watermark)
        else:
            super().on_watermark(watermark)

    def on_watermark_status(self, status: WatermarkStatus) -> None:
        if len(self._held):
            self._held.add(status)
        else:
            super().on_watermark_status(status)

    def next_timer(self) -> float | None:
        return _NOW if self._held.is_ready() else None

    def fire_timers(self, now: float) -> None:
        self.flush()

    def flush(self) -> None:
        """Emit the available results; if a request failed, those before it."""
        held = len(self._held)
        records: list[Any] = []
        stamps: list[int | None] = []
        for element in self._held.take():
            if isinstance(element, Request) and element.failure is None:
                records += element.results
                stamps += [element.timestamp] * len(element.results)
                continue
            self._emit(records, stamps)
            records, stamps = [], []
            match element:
                case Watermark():
                    self.output.emit_watermark(element)
                case WatermarkStatus():
                    self.output.emit_watermark_status(element)
                case Request():
                    self._fail(element)
        self._emit(records, stamps)
        if held:
            taken = held - len(self._held)
            self._most_held = max(self._least_room, 2 * taken, self._most_held // 2)

    def _emit(self, records: list[Any], stamps: list[int | None]) -> None:
        if records:
            timestamps = timestamps_of(stamps)
            self.output.emit(Batch(records=records, format=self.format, timestamps=timestamps))

    def _fail(self, request: Request) -> None:
        failure = request.failure
        assert failure is not None
        if self._dead_letters is None or not isinstance(failure, UserFunctionError):
            raise failure
        self._dead_letters.settle(request.value, failure)

    def room(self) -> int:
        return max(0, self._most_held - len(self._held))

    def is_drained(self) -> bool:
        return not len(self._held)

    def drain(self) -> None:
        assert self._loop is not None
        self.flush()
        while not self.is_drained():
            self._loop.await_progress()
            self.flush()

    def snapshot(self, barrier: Barrier) -> OperatorSnapshot:
        snapshot = super().snapshot(barrier)
        parallelism = self._context.parallelism
        self._stored.update(
            StoredRequest(held.value, held.timestamp)
            if isinstance(held, Request)
            else StoredWatermark(held.timestamp, parallelism)
            for held in self._held.in_flight()
            if not isinstance(held, WatermarkStatus)
        )
        return snapshot

    def close(self) -> None:
        if self._loop is not None:
            try:
                if self._loop.cancel_requests():
                    super().close()
                else:
                    self._context.console(
                        f"WARNING {self._context.name}: its event loop is blocked, so the function "
                        "is not closed: use an asynchronous client, or asyncio.to_thread"
                    )
            finally:
                self._loop.close()
