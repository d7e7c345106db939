"""Bugs of the sinks for Kafka and PostgreSQL."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.sim.bugs.planting import bug, instead, section
from tidegate.connectors.kafka import transaction_log
from tidegate.connectors.kafka.producing import RecordProducer
from tidegate.connectors.kafka.transaction_ids import TransactionalIds
from tidegate.connectors.kafka.transaction_log import TransactionFate
from tidegate.connectors.kafka.transactional_writer import TransactionalWriter
from tidegate.connectors.kafka.transactions import (
    BrokerTransactions,
    KafkaTransaction,
    TransactionState,
)
from tidegate.connectors.postgres import transactions
from tidegate.connectors.postgres.transactions import (
    PostgresCommitter,
    TransactionNames,
    TransactionWriter,
)
from tidegate.core.errors import DatabaseFailed, KafkaFailed

LEFT = "kill a slot", "kill the driver", "user code fails"


def _unanswered_is_done(*failures: type[Exception]) -> Any:
    def change(original: Any) -> Any:
        def commit(self: Any, committables: Any) -> None:
            try:
                original(self, committables)
            except failures:
                pass

        return commit

    return change


# --- Kafka: commits ---------------------------------------------------------------------------

section("a transaction times out", moments=("a barrier starts", "metadata is created"), faults=4)
bug(
    "a commit that Kafka refuses is taken for done",
    (BrokerTransactions, "_fate", instead(TransactionFate.COMMITTED)),
    sink="kafka",
)


def _unconfirmed(original: Any) -> Any:
    def confirmed(self: Any, current: Any) -> KafkaTransaction:
        begun = current.described
        found = self._transactions.describe(current.transactional_id)
        first = self._transactions.first_record(begun.producer_id, *(found.partition or ("", 0)))
        return KafkaTransaction(
            current.transactional_id, begun.producer_id, begun.epoch, found.timeout_ms, first
        )

    return confirmed


section("a transaction times out", moments=(), interval=2000, faults=6)
bug(
    "a transaction whose time has run out is prepared",
    (TransactionalWriter, "_confirmed", _unconfirmed),
    sink="kafka",
)

# Whoever restores an older savepoint asks for transactions whose ids have new producers by now.
section("savepoint", moments=(), interval=300, rate=2.0, faults=3)
bug(
    "markers of commits and of aborts are mixed up",
    (transaction_log, "_kind", lambda o: lambda batch: 1 - o(batch)),
    sink="kafka",
)

section("the bank fails @ a transaction is committed", moments=(), interval=700)
bug(
    "a commit that Kafka does not answer is taken for done",
    (BrokerTransactions, "commit", _unanswered_is_done(KafkaFailed)),
    sink="kafka",
)
bug(
    "a commit that PostgreSQL does not answer is taken for done",
    (PostgresCommitter, "commit", _unanswered_is_done(DatabaseFailed)),
    sink="postgres",
)

# --- Kafka: ids -------------------------------------------------------------------------------


def _aborts_of(whose: Any) -> Any:
    """Aborts what earlier attempts of these subtasks left."""

    def change(original: Any) -> Any:
        def abort(self: Any) -> None:
            for found in self._transactions.ids_beginning_with(self._names.common):
                subtask = self._names.subtask_of(found)
                if whose(self, found, subtask) and not self._is_recovered(found):
                    self._transactions.fence(found, self._timeout_ms, self._context.permit)

        return abort

    return change


def _is_own(self: Any, found: str, subtask: int) -> bool:
    return bool(subtask % self._context.parallelism == self._context.subtask)


def _is_open(self: Any, found: str, subtask: int) -> bool:
    state = self._transactions.describe(found).state
    return _is_own(self, found, subtask) and state is TransactionState.OPEN


section("kill the driver @ a transaction is prepared", width=3, faults=6, sink="kafka")
bug(
    "transactions of lost attempts stay open",
    (TransactionalWriter, "_abort_what_earlier_attempts_left", instead(None)),
)
bug(
    "transactions of subtasks that are gone stay open",
    (
        TransactionalWriter,
        "_abort_what_earlier_attempts_left",
        _aborts_of(lambda self, found, subtask: subtask == self._context.subtask),
    ),
)
section(*LEFT, width=3, sink="kafka")
bug(
    "transactions of other subtasks are aborted",
    (
        TransactionalWriter,
        "_abort_what_earlier_attempts_left",
        _aborts_of(lambda self, found, subtask: True),
    ),
)
section("put a slot to sleep", moments=("a transaction begins", "a completion arrives"), faults=6)
bug(
    "only transactions that are open are taken from lost attempts",
    (TransactionalWriter, "_abort_what_earlier_attempts_left", _aborts_of(_is_open)),
    sink="kafka",
    interval=700,
    rate=4.0,
    width=2,
)
section("put a slot to sleep", moments=("a barrier starts",), faults=6, sink="kafka")


def _unpermitted(original: Any) -> Any:
    def make_ready(self: Any, transactional_id: str) -> Any:
        context = self._context
        self._context = replace(context, permit=type(context.permit)())
        try:
            return original(self, transactional_id)
        finally:
            self._context = context

    return make_ready


section("put a slot to sleep", moments=("a step starts",), faults=4, sink="kafka")
bug(
    "a producer takes its id without asking whether it may",
    (TransactionalWriter, "_make_ready", _unpermitted),
)

section(*LEFT, "storage is slow", moments=("metadata is created",), interval=300, sink="kafka")
bug(
    "an id is used again before its transaction is committed",
    (TransactionalIds, "prepared", lambda o: lambda self, id, number: self._uses.pop(id)),
)


def _aborts_prepared(original: Any) -> Any:
    def close(self: Any) -> None:
        if self._context.permit.is_valid():
            for each in list(self._begun_at):
                self._transactions.fence(each, self._timeout_ms, self._context.permit)
        original(self)

    return close


bug(
    "a writer that closes aborts what it has prepared",
    (TransactionalWriter, "close", _aborts_prepared),
)
section("the bank fails", "user code fails", sink="kafka")
bug(
    "messages are on their way when their transaction is prepared",
    (RecordProducer, "flush", lambda o: lambda self: self._producer.poll(0)),
)

# --- PostgreSQL -------------------------------------------------------------------------------

section("the bank fails @ a transaction is committed", moments=(), interval=700, sink="postgres")


def _gone_is_lost(original: Any) -> Any:
    def require_committed(session: Any, transaction: Any) -> None:
        raise transactions.TransactionLost(str(session.server), transaction.name, "it is gone")

    return require_committed


bug(
    "what was committed before is taken for lost",
    (transactions, "_require_committed", _gone_is_lost),
)
section("a transaction times out", moments=("metadata is created",), faults=4, sink="postgres")
bug(
    "what is gone is taken for committed",
    (transactions, "_require_committed", instead(None)),
)


def _numbered_once(original: Any) -> Any:
    def prepared(self: Any) -> Any:
        found = original(self)
        self._first = getattr(self, "_first", None) or [each.number for each in found]
        return [replace(each, number=self._first[0]) for each in found]

    return prepared


bug(
    "a transaction is known by the number of the first one",
    (TransactionWriter, "_prepared", _numbered_once),
    interval=300,
)
section("kill the driver @ a transaction is prepared", width=3, faults=6, sink="postgres")
bug(
    "prepared transactions of lost attempts stay",
    (transactions, "_roll_back_orphans", instead(None)),
)
bug(
    "prepared transactions of subtasks that are gone stay",
    (
        TransactionNames,
        "is_for",
        lambda o: lambda self, subtask, context: subtask == context.subtask,
    ),
)
section(*LEFT, width=3, sink="postgres")
bug(
    "sessions of other subtasks are ended",
    (TransactionNames, "is_for", instead(True)),
)
section(
    "put a slot to sleep",
    moments=("a transaction is prepared",),
    interval=300,
    faults=3,
    sink="postgres",
)
bug(
    "sessions of lost attempts go on",
    (transactions, "_end_older_sessions", instead(None)),
)
