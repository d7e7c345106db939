"""The functions that run on windows, under PyFlink's names, and how they are called."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Any, Generic, TypeVar

from tidegate.operators.functions import Function
from tidegate.operators.runtime_context import KeyedStateStore

IN = TypeVar("IN")
OUT = TypeVar("OUT")
KEY = TypeVar("KEY")
W = TypeVar("W")
W2 = TypeVar("W2")


class WindowFunction(Function, Generic[IN, OUT, KEY, W]):
    """Any number of results for each firing of a window of a key."""

    @abstractmethod
    def apply(self, key: KEY, window: W, inputs: Iterable[IN]) -> Iterable[OUT]:
        """The results for the records of a window of one key, as an iterable."""


class AllWindowFunction(Function, Generic[IN, OUT, W]):
    """Like WindowFunction, on a stream without keys."""

    @abstractmethod
    def apply(self, window: W, inputs: Iterable[IN]) -> Iterable[OUT]:
        """The results for the records of a window, as an iterable."""


class WindowContext(ABC, Generic[W2]):
    """The context of a firing; valid only during the call."""

    @abstractmethod
    def window(self) -> W2: ...

    @abstractmethod
    def current_processing_time(self) -> int: ...

    @abstractmethod
    def current_watermark(self) -> int: ...

    @abstractmethod
    def window_state(self) -> KeyedStateStore:
        """State of this window of the key; clear it in `clear`."""

    @abstractmethod
    def global_state(self) -> KeyedStateStore:
        """State of the key, the same in all its windows."""


class ProcessWindowFunction(Function, Generic[IN, OUT, KEY, W]):
    """Like WindowFunction, with time, state and side outputs."""

    class Context(WindowContext[W2], Generic[W2]):
        """The context of a firing; valid only during the call."""

    @abstractmethod
    def process(
        self, key: KEY, context: ProcessWindowFunction.Context[W], elements: Iterable[IN]
    ) -> Iterable[OUT]:
        """The results for the records of a window of one key, as an iterable."""

    def clear(self, context: ProcessWindowFunction.Context[W]) -> None:
        """The window is removed: clear its `window_state`."""


class ProcessAllWindowFunction(Function, Generic[IN, OUT, W]):
    """Like ProcessWindowFunction, on a stream without keys."""

    class Context(WindowContext[W2], Generic[W2]):
        """The context of a firing; valid only during the call."""

    @abstractmethod
    def process(
        self, context: ProcessAllWindowFunction.Context[W], elements: Iterable[IN]
    ) -> Iterable[OUT]:
        """The results for the records of a window, as an iterable."""

    def clear(self, context: ProcessAllWindowFunction.Context[W]) -> None:
        """The window is removed: clear its `window_state`."""


Evaluation = Callable[[Any, Any, Any, Any], Any]
"""(key, window, contents, context) → the results of a firing."""


def evaluation_of(function: Any, *, is_single: bool) -> Evaluation:
    """How a window function is called.

    Args:
        function: None: the contents are the result.
        is_single: whether the contents of a window are one value instead of a list.
    """
    if function is None:
        return (lambda key, window, value, context: (value,)) if is_single else _all
    call = _evaluation(function)
    if not is_single:
        return call
    return lambda key, window, value, context: call(key, window, [value], context)


def _all(key: Any, window: Any, contents: Any, context: Any) -> Any:
    return contents


def _evaluation(function: Any) -> Evaluation:
    match function:
        case WindowFunction():
            apply = function.apply
            return lambda key, window, contents, context: apply(key, window, contents)
        case AllWindowFunction():
            apply_all = function.apply
            return lambda key, window, contents, context: apply_all(window, contents)
        case ProcessWindowFunction():
            process = function.process
            return lambda key, window, contents, context: process(key, context, contents)
        case ProcessAllWindowFunction():
            process_all = function.process
            return lambda key, window, contents, context: process_all(context, contents)
    raise TypeError(f"expected a window function, got {function!r}")


def clear_of(function: Any) -> Callable[[Any], None] | None:
    """What to call when a window is removed; None: nothing."""
    for kind in (ProcessWindowFunction, ProcessAllWindowFunction):
        if isinstance(function, kind) and type(function).clear is not kind.clear:
            clear: Callable[[Any], None] = function.clear
            return clear
    return None
