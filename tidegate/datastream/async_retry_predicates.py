"""Predicates for retry strategies of `AsyncDataStream`."""

from tidegate.operators.async_io.retries import (
    empty_result_predicate,
    exception_type_predicate,
    has_exception_predicate,
)

__all__ = ["empty_result_predicate", "exception_type_predicate", "has_exception_predicate"]
