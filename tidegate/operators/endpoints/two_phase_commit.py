"""Sink functions whose results become visible by transactions of the external system.

start     begin_transaction()                       after restored transactions are settled
record    invoke(transaction, value, context)
barrier   pre_commit(transaction), begin_transaction()
later     commit(transaction)                       only when the checkpoint is durable
restore   recover_and_commit(…), recover_and_abort(…)   the transactions of the checkpoint
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any

from tidegate.connectors.guarantee import Delivery, DeliveryGuarantee
from tidegate.core.durations import DurationLike, as_timedelta
from tidegate.core.ids import CheckpointId
from tidegate.operators.base import OperatorContext, OperatorSnapshot, Output
from tidegate.operators.endpoints.operators import SinkFunctionContext, invoke_for_each
from tidegate.operators.functions import Function, SinkFunction
from tidegate.operators.user_code import FunctionOperator
from tidegate.state.descriptors import ListStateDescriptor
from tidegate.stream.batch import Batch
from tidegate.stream.elements import Barrier, Watermark

_STATE = "_transactions"


class TwoPhaseCommitSinkFunction(Function):
    """Adds every record to a transaction that is committed with the next checkpoint.

    Transactions are picklable values, such as an id: another process must be able to commit them.
    `commit` may be repeated after a failure, so twice must equal once.
    """

    transaction_timeout: timedelta | None = None
    """After this time, the external system aborts a transaction by itself."""
    warning_ratio: float = 0.8
    ignores_failures_after_timeout = False

    @abstractmethod
    def begin_transaction(self) -> Any:
        """Begin a transaction."""

    @abstractmethod
    def invoke(self, transaction: Any, value: Any, context: SinkFunction.Context) -> None:
        """Write a record in a transaction."""

    @abstractmethod
    def pre_commit(self, transaction: Any) -> None:
        """Make what was written durable; afterwards, a commit must not fail for its own reasons."""

    @abstractmethod
    def commit(self, transaction: Any) -> None:
        """Make it visible. May be repeated."""

    @abstractmethod
    def abort(self, transaction: Any) -> None:
        """Discard what was written."""

    def recover_and_commit(self, transaction: Any) -> None:
        """Commit a transaction of an earlier attempt, possibly again."""
        self.commit(transaction)

    def recover_and_abort(self, transaction: Any) -> None:
        """Abort a transaction of an earlier attempt."""
        self.abort(transaction)

    def initialize_user_context(self) -> Any:
        """A value to store with the transactions, created at the first start; None for none."""
        return None

    user_context: Any = None
    """What `initialize_user_context` returned, or what was restored; set before `open`."""

    def set_transaction_timeout(self, transaction_timeout: DurationLike) -> None:
        """Set the timeout, in milliseconds or as `timedelta`; warnings are logged before it."""
        self.transaction_timeout = as_timedelta(transaction_timeout)

    def enable_transaction_timeout_warnings(self, warning_ratio: float) -> None:
        """Warn when a transaction has used this share of its timeout."""
        if not 0 <= warning_ratio <= 1:
            raise ValueError(f"give a ratio from 0 to 1, not {warning_ratio}")
        self.warning_ratio = warning_ratio

    def ignore_failures_after_transaction_timeout(self) -> None:
        """Ignore a commit that fails after the timeout: records are lost, the job continues."""
        self.ignores_failures_after_timeout = True


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """A transaction, and when it began in seconds since the epoch."""

    handle: Any
    begun_at: float


@dataclass(frozen=True, slots=True)
class SavedTransactions:
    """The transactions of one subtask in a checkpoint."""

    current: OpenTransaction | None
    """Begun at the barrier: the checkpoint includes nothing of it."""
    prepared: tuple[tuple[CheckpointId, OpenTransaction], ...]
    user_context: Any


class TwoPhaseCommitOperator(FunctionOperator):
    """Manages the transactions of a TwoPhaseCommitSinkFunction."""

    function: TwoPhaseCommitSinkFunction

    def __init__(self, function: TwoPhaseCommitSinkFunction) -> None:
        super().__init__(function)
        self._current: OpenTransaction | None = None
        self._prepared: list[tuple[CheckpointId, OpenTransaction]] = []

    def delivery(self) -> Delivery:
        why = "commits its transactions with the checkpoint"
        return Delivery(DeliveryGuarantee.EXACTLY_ONCE, why, commits=True)

    def keeps_state(self) -> bool:
        return True

    def open(self, context: OperatorContext, output: Output) -> None:
        self._operator_context = context
        self._record_context = SinkFunctionContext(context.clock, context.watermark)
        self._state = context.operator_state.get_list_state(ListStateDescriptor(_STATE))
        restored: list[SavedTransactions] = list(self._state.get())
        contexts = [each.user_context for each in restored if each.user_context is not None]
        self.function.user_context = contexts[0] if contexts else None
        super().open(context, output)
        with self.user_code.guard():
            if not restored:
                self.function.user_context = self.function.initialize_user_context()
            for transactions in restored:
                self._settle(transactions)
            self._current = self._begin()

    def _settle(self, transactions: SavedTransactions) -> None:
        for _, prepared in transactions.prepared:
            self._commit(prepared, self.function.recover_and_commit)
        if transactions.current is not None:
            self._operator_context.permit.require()
            self.function.recover_and_abort(transactions.current.handle)

    def process(self, batch: Batch, input_index: int = 0) -> None:
        assert self._current is not None
        invoke = partial(self.function.invoke, self._current.handle)
        invoke_for_each(invoke, batch, self._record_context, self.user_code)

    def on_watermark(self, watermark: Watermark) -> None:
        self._record_context.watermark = watermark.timestamp

    def snapshot(self, barrier: Barrier) -> OperatorSnapshot:
        with self.user_code.guard():
            if self._current is not None:
                self.function.pre_commit(self._current.handle)
                self._prepared.append((barrier.checkpoint_id, self._current))
                self._current = None
            self._current = self._begin()
        self._store()
        for _, prepared in self._prepared:
            self._warn_if_late(prepared)
        return super().snapshot(barrier)

    def notify_complete(self, checkpoint_id: CheckpointId) -> None:
        with self.user_code.guard():
            while self._prepared and self._prepared[0][0] <= checkpoint_id:
                self._commit(self._prepared[0][1], self.function.commit)
                del self._prepared[0]
        self._store()
        super().notify_complete(checkpoint_id)

    def finish(self, input_index: int = 0) -> None:
        if self._operator_context.is_checkpointed or self._current is None:
            return
        with self.user_code.guard():
            # No further checkpoint will commit what savepoints have prepared.
            for _, prepared in self._prepared:
                self._commit(prepared, self.function.commit)
            self._prepared.clear()
            self.function.pre_commit(self._current.handle)
            self._commit(self._current, self.function.commit)
            self._current = None

    def close(self) -> None:
        try:
            current = self._current if self._opened else None
            if current is not None and self._operator_context.permit.is_valid():
                with self.user_code.guard():
                    self.function.abort(current.handle)
        finally:
            self._current = None
            super().close()

    def _begin(self) -> OpenTransaction:
        self._operator_context.permit.require()
        now = self._operator_context.clock.time()
        return OpenTransaction(self.function.begin_transaction(), now)

    def _store(self) -> None:
        known = SavedTransactions(self._current, tuple(self._prepared), self.function.user_context)
        self._state.update([known])

    def _commit(self, transaction: OpenTransaction, commit: Any) -> None:
        self._operator_context.permit.require()
        try:
            commit(transaction.handle)
        except Exception as error:
            if not (self.function.ignores_failures_after_timeout and self._is_late(transaction, 1)):
                raise
            self._say(f"transaction {transaction.handle!r} has timed out and is lost: {error}")

    def _warn_if_late(self, transaction: OpenTransaction) -> None:
        if self._is_late(transaction, self.function.warning_ratio):
            self._say(
                f"transaction {transaction.handle!r} is close to its timeout of "
                f"{self.function.transaction_timeout}: checkpoints take too long"
            )

    def _is_late(self, transaction: OpenTransaction, ratio: float) -> bool:
        timeout = self.function.transaction_timeout
        if timeout is None:
            return False
        age = self._operator_context.clock.time() - transaction.begun_at
        return age >= ratio * timeout.total_seconds()

    def _say(self, text: str) -> None:
        context = self._operator_context
        context.console(f"WARNING {context.name} ({context.subtask + 1}): {text}")
