"""Process functions on a stream, keyed or not, and a broadcast stream."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tidegate.operators.base import OperatorContext, Output
from tidegate.operators.functions import (
    BroadcastProcessFunction,
    Function,
    KeyedBroadcastProcessFunction,
)
from tidegate.operators.keyed import KeyedProcessOperator
from tidegate.operators.keyed_context import KeyedContext, KeyedTimerContext, KeyedTimers
from tidegate.operators.results import emit_tagged_outcome
from tidegate.operators.two_inputs.broadcast_context import (
    BroadcastStates,
    KeyedReadingContext,
    KeyedReadingTimerContext,
    KeyedWritingContext,
    ReadingContext,
    WritingContext,
)
from tidegate.operators.user_code import FunctionOperator
from tidegate.state.descriptors import MapStateDescriptor
from tidegate.state.keys.selection import KeySelection
from tidegate.stream.batch import Batch
from tidegate.stream.elements import Watermark
from tidegate.types.arrow import ArrowFormat

BROADCAST_INPUT = 1
"""The index of the broadcast input."""


class BroadcastProcessOperator(FunctionOperator):
    """Runs a BroadcastProcessFunction, on a stream without keys."""

    def __init__(
        self,
        function: BroadcastProcessFunction,
        descriptors: Sequence[MapStateDescriptor],
        format: ArrowFormat | None = None,
        side_formats: dict[str, ArrowFormat | None] | None = None,
    ) -> None:
        super().__init__(function, format)
        self.descriptors = tuple(descriptors)
        self.side_formats = side_formats if side_formats is not None else {}
        """May be filled until the graph is translated: tags are declared where they are read."""

    def open(self, context: OperatorContext, output: Output) -> None:
        states = BroadcastStates(context.operator_state, self.descriptors)
        self._reading = ReadingContext(context.clock, states, context.watermark)
        self._writing = WritingContext(context.clock, states, context.watermark)
        super().open(context, output)

    def keeps_state(self) -> bool:
        return True

    def process(self, batch: Batch, input_index: int = 0) -> None:
        function = self.function
        if input_index == BROADCAST_INPUT:
            outcome = self.user_code.process_until_failure(
                function.process_broadcast_element, batch.records, self._writing, batch.timestamps
            )
        else:
            outcome = self.user_code.process_until_failure(
                function.process_element, batch.records, self._reading, batch.timestamps
            )
        emit_tagged_outcome(self.output, outcome, self.format, self.side_formats)

    def on_watermark(self, watermark: Watermark) -> None:
        self._reading.watermark = self._writing.watermark = watermark.timestamp
        super().on_watermark(watermark)


class KeyedBroadcastProcessOperator(KeyedProcessOperator):
    """Runs a KeyedBroadcastProcessFunction: keyed state, timers and broadcast state."""

    def __init__(
        self,
        function: KeyedBroadcastProcessFunction,
        key: KeySelection,
        descriptors: Sequence[MapStateDescriptor],
        format: ArrowFormat | None = None,
        side_formats: dict[str, ArrowFormat | None] | None = None,
    ) -> None:
        super().__init__(function, [key], format, side_formats)
        self.descriptors = tuple(descriptors)

    @staticmethod
    def contract(inputs: int) -> type[Function]:
        return KeyedBroadcastProcessFunction

    def contexts(
        self, context: OperatorContext, timers: KeyedTimers
    ) -> tuple[KeyedContext, KeyedTimerContext]:
        states = BroadcastStates(context.operator_state, self.descriptors)
        self._writing = KeyedWritingContext(context.clock, states, self.backend, context.watermark)
        return (
            KeyedReadingContext(self.backend, timers, states),
            KeyedReadingTimerContext(self.backend, timers, states),
        )

    def functions(self) -> tuple[Callable[[Any, Any], Any], ...]:
        return (self.function.process_element,)

    def process(self, batch: Batch, input_index: int = 0) -> None:
        if input_index != BROADCAST_INPUT:
            super().process(batch)
            return
        self._writing.leave_key()
        self.emit(
            self.user_code.process_until_failure(
                self.function.process_broadcast_element,
                batch.records,
                self._writing,
                batch.timestamps,
            )
        )

    def on_watermark(self, watermark: Watermark) -> None:
        self._writing.watermark = watermark.timestamp
        super().on_watermark(watermark)
