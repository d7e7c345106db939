"""Operators whose functions have state and timers for the key of the record."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tidegate.core.errors import TidegateError
from tidegate.operators.base import Operator, OperatorContext, OperatorSnapshot, Output
from tidegate.operators.functions import (
    CoFlatMapFunction,
    CoMapFunction,
    FilterFunction,
    FlatMapFunction,
    Function,
    KeyedCoProcessFunction,
    KeyedProcessFunction,
    MapFunction,
    ReduceFunction,
    bound_method,
)
from tidegate.operators.keyed_context import FunctionContext, KeyedStates
from tidegate.operators.results import emit_outcome, emit_tagged_outcome
from tidegate.operators.runtime_context import RuntimeContext
from tidegate.operators.user_code import USER_FAILURES, FunctionOperator, Outcome, repeated
from tidegate.state.backend import KeyedStateBackend
from tidegate.state.copies import private_copy
from tidegate.state.descriptors import ValueStateDescriptor
from tidegate.state.hashmap_backend import HashMapBackend
from tidegate.state.keys import KeySelection
from tidegate.state.stable_hash import stable_hash
from tidegate.stream.batch import Batch
from tidegate.stream.elements import Barrier, Watermark
from tidegate.types.arrow import ArrowFormat
