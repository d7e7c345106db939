"""Connected streams without keys: one function, two inputs."""

from __future__ import annotations

from tidegate.operators.base import OperatorContext, Output
from tidegate.operators.functions import CoFlatMapFunction, CoProcessFunction
from tidegate.operators.results import emit_outcome, emit_tagged_outcome
from tidegate.operators.unkeyed import UnkeyedContext
from tidegate.operators.user_code import FunctionOperator
from tidegate.stream.batch import Batch
from tidegate.stream.elements import Watermark
from tidegate.types.arrow import ArrowFormat


class CoFlatMapOperator(FunctionOperator):
    """`flat_map1` on the records of the first input, `flat_map2` on those of the second."""

    def __init__(self, function: CoFlatMapFunction, format: ArrowFormat | None = None) -> None:
        super().__init__(function, format)
        if not isinstance(function, CoFlatMapFunction):
            raise TypeError(
                f"flat_map() on connected streams needs a CoFlatMapFunction, got {function!r}"
            )

    def process(self, batch: Batch, input_index: int = 0) -> None:
        function = self.function.flat_map1 if input_index == 0 else self.function.flat_map2
        outcome = self.user_code.flat_map_until_failure(function, batch.records, batch.timestamps)
        emit_outcome(self.output, outcome, self.format)


class CoProcessOperator(FunctionOperator):
    """A CoProcessFunction without keys: side outputs, but neither state nor timers."""

    def __init__(
        self,
        function: CoProcessFunction,
        format: ArrowFormat | None = None,
        side_formats: dict[str, ArrowFormat | None] | None = None,
    ) -> None:
        super().__init__(function, format)
        if not isinstance(function, CoProcessFunction):
            raise TypeError(
                f"process() on connected streams without keys needs a CoProcessFunction, "
                f"got {function!r}"
            )
        self.side_formats = side_formats if side_formats is not None else {}

    def open(self, context: OperatorContext, output: Output) -> None:
        self._context = UnkeyedContext(context.clock, context.watermark)
        super().open(context, output)

    def process(self, batch: Batch, input_index: int = 0) -> None:
        function = self.function
        process = function.process_element1 if input_index == 0 else function.process_element2
        outcome = self.user_code.process_until_failure(
            process, batch.records, self._context, batch.timestamps
        )
        emit_tagged_outcome(self.output, outcome, self.format, self.side_formats)

    def on_watermark(self, watermark: Watermark) -> None:
        self._context.watermark = watermark.timestamp
        super().on_watermark(watermark)
