"""What users implement for async I/O, under PyFlink's names."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from tidegate.operators.functions import Function

IN = TypeVar("IN")
OUT = TypeVar("OUT")
ResultPredicate = Callable[[list[Any]], bool]
ExceptionPredicate = Callable[[BaseException], bool]


class AsyncFunction(Function, Generic[IN, OUT]):
    """A request to another system for every record.

    All coroutines of a subtask run on one event loop, in a thread of its own. `open` and `close`
    run there as well and may be coroutines, so that they can open and close a client session.
    """

    @abstractmethod
    async def async_invoke(self, value: IN) -> list[OUT]:
        """The results for a record, any number of them.

        An exception fails the job, which sends the request again when it has recovered.
        """

    def timeout(self, value: IN) -> list[OUT]:
        """The results for a record whose request has timed out; may be a coroutine."""
        raise TimeoutError(f"the request timed out for the record {value!r}")


class AsyncRetryPredicate(ABC, Generic[OUT]):
    """After which outcomes a request is repeated."""

    @abstractmethod
    def result_predicate(self) -> Callable[[list[OUT]], bool] | None:
        """Tells whether results are a reason to try again; None: they never are."""

    @abstractmethod
    def exception_predicate(self) -> Callable[[BaseException], bool] | None:
        """Tells whether an exception is a reason to try again; None: it never is."""


class AsyncRetryStrategy(ABC, Generic[OUT]):
    """How often a request is repeated, and after which pauses."""

    @abstractmethod
    def can_retry(self, current_attempts: int) -> bool:
        """Whether to try again after this many attempts, including the first."""

    @abstractmethod
    def get_backoff_time_millis(self, current_attempts: int) -> int:
        """The pause after this many attempts."""

    @abstractmethod
    def get_retry_predicate(self) -> AsyncRetryPredicate[OUT]:
        """Which results and exceptions are tried again."""

    @staticmethod
    def no_restart() -> AsyncRetryStrategy[Any]:
        """Never try again."""
        from tidegate.operators.async_io.retries import NO_RETRY_STRATEGY

        return NO_RETRY_STRATEGY

    @staticmethod
    def fixed_delay(
        max_attempts: int,
        backoff_time_millis: int,
        result_predicate: ResultPredicate | None,
        exception_predicate: ExceptionPredicate | None,
    ) -> AsyncRetryStrategy[Any]:
        """Try again after the same pause, up to a number of attempts."""
        from tidegate.operators.async_io.retries import FixedDelayRetryStrategy

        return FixedDelayRetryStrategy(
            max_attempts, backoff_time_millis, result_predicate, exception_predicate
        )

    @staticmethod
    def exponential_backoff(
        max_attempts: int,
        initial_delay: int,
        max_retry_delay: int,
        multiplier: float,
        result_predicate: ResultPredicate | None,
        exception_predicate: ExceptionPredicate | None,
    ) -> AsyncRetryStrategy[Any]:
        """Try again after pauses that grow up to a limit."""
        from tidegate.operators.async_io.retries import ExponentialBackoffDelayRetryStrategy

        return ExponentialBackoffDelayRetryStrategy(
            max_attempts,
            initial_delay,
            max_retry_delay,
            multiplier,
            result_predicate,
            exception_predicate,
        )
