"""The retry strategies and predicates that come with PyFlink."""

from __future__ import annotations

from typing import Any, Generic

from tidegate.core.errors import ConfigError
from tidegate.operators.async_io.contracts import (
    OUT,
    AsyncRetryPredicate,
    AsyncRetryStrategy,
    ExceptionPredicate,
    ResultPredicate,
)


class RetryPredicate(AsyncRetryPredicate[OUT], Generic[OUT]):
    """A pair of predicates."""

    def __init__(
        self,
        result_predicate: ResultPredicate | None,
        exception_predicate: ExceptionPredicate | None,
    ) -> None:
        self._result_predicate = result_predicate
        self._exception_predicate = exception_predicate

    def result_predicate(self) -> ResultPredicate | None:
        return self._result_predicate

    def exception_predicate(self) -> ExceptionPredicate | None:
        return self._exception_predicate


class NoRetryStrategy(AsyncRetryStrategy[OUT], Generic[OUT]):
    """One attempt."""

    def can_retry(self, current_attempts: int) -> bool:
        return False

    def get_backoff_time_millis(self, current_attempts: int) -> int:
        return -1

    def get_retry_predicate(self) -> AsyncRetryPredicate[OUT]:
        return RetryPredicate(None, None)


class FixedDelayRetryStrategy(AsyncRetryStrategy[OUT], Generic[OUT]):
    """Up to `max_attempts` further attempts, with the same pause before each."""

    def __init__(
        self,
        max_attempts: int,
        backoff_time_millis: int,
        result_predicate: ResultPredicate | None,
        exception_predicate: ExceptionPredicate | None,
    ) -> None:
        self._max_attempts = int(_positive("max_attempts", max_attempts))
        self._backoff = int(_positive("backoff_time_millis", backoff_time_millis))
        self._predicate: RetryPredicate[OUT] = RetryPredicate(result_predicate, exception_predicate)

    def can_retry(self, current_attempts: int) -> bool:
        return current_attempts <= self._max_attempts

    def get_backoff_time_millis(self, current_attempts: int) -> int:
        return self._backoff

    def get_retry_predicate(self) -> AsyncRetryPredicate[OUT]:
        return self._predicate


class ExponentialBackoffDelayRetryStrategy(AsyncRetryStrategy[OUT], Generic[OUT]):
    """Up to `max_attempts` further attempts, with pauses that grow up to `max_retry_delay`."""

    def __init__(
        self,
        max_attempts: int,
        initial_delay: int,
        max_retry_delay: int,
        multiplier: float,
        result_predicate: ResultPredicate | None,
        exception_predicate: ExceptionPredicate | None,
    ) -> None:
        self._max_attempts = int(_positive("max_attempts", max_attempts))
        self._initial = _positive("initial_delay", initial_delay)
        self._longest = _positive("max_retry_delay", max_retry_delay)
        self._multiplier = _positive("multiplier", multiplier)
        self._predicate: RetryPredicate[OUT] = RetryPredicate(result_predicate, exception_predicate)

    def can_retry(self, current_attempts: int) -> bool:
        return current_attempts <= self._max_attempts

    def get_backoff_time_millis(self, current_attempts: int) -> int:
        pause = self._initial
        for _ in range(current_attempts - 1):
            pause = min(pause * self._multiplier, self._longest)
        return int(pause)

    def get_retry_predicate(self) -> AsyncRetryPredicate[OUT]:
        return self._predicate


NO_RETRY_STRATEGY: AsyncRetryStrategy[Any] = NoRetryStrategy()


def empty_result_predicate(result: list[Any] | None) -> bool:
    """Try again if there is no result."""
    return result is None or len(result) == 0


def has_exception_predicate(error: BaseException | None) -> bool:
    """Try again after any exception."""
    return error is not None


def exception_type_predicate(error: BaseException, expected_error_type: type) -> bool:
    """Try again after exceptions of a type; for use in your own predicates."""
    return isinstance(error, expected_error_type)


def _positive(name: str, value: float) -> float:
    if value <= 0:
        raise ConfigError(name, value, "give a number above zero")
    return value
