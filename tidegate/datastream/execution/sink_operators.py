"""The operator for a sink of any kind."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tidegate.connectors.sink import Sink
from tidegate.operators.base import Operator
from tidegate.operators.endpoints.operators import SinkFunctionOperator, SinkOperator
from tidegate.operators.endpoints.two_phase_commit import (
    TwoPhaseCommitOperator,
    TwoPhaseCommitSinkFunction,
)
from tidegate.operators.functions import SinkFunction
from tidegate.types.arrow import ArrowFormat

SinkLike = SinkFunction | TwoPhaseCommitSinkFunction | Sink | Callable[[Any], Any]


def sink_operator(sink: SinkLike, format: ArrowFormat | None) -> Operator:
    """The operator for a Sink, a sink function of either kind, or a plain function."""
    if isinstance(sink, Sink):
        return SinkOperator(sink, format)
    if isinstance(sink, TwoPhaseCommitSinkFunction):
        return TwoPhaseCommitOperator(sink)
    return SinkFunctionOperator(sink)
