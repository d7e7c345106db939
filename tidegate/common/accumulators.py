"""Accumulators: `runtime_context.add_accumulator(name, LongCounter())`."""

from tidegate.operators.accumulators import (
    DoubleCounter,
    Histogram,
    IntCounter,
    ListAccumulator,
    LongCounter,
)
from tidegate.operators.accumulators import (
    FunctionAccumulator as Accumulator,
)

__all__ = [
    "Accumulator",
    "DoubleCounter",
    "Histogram",
    "IntCounter",
    "ListAccumulator",
    "LongCounter",
]
