"""Writes within transactions of Kafka that are committed with the checkpoint.

    write     each transaction has its own producer, prepared in advance
    barrier   flush; the coordinator confirms that the transaction is open; the producer is closed
    later     the committer ends the transaction by its id, producer id and epoch

A transaction outlives its producer, and even its process: it stays open until somebody ends it, or
until it times out.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta

from tidegate.connectors.kafka.producer_settings import (
    DELIVERY_TIMEOUT,
    TRANSACTION_TIMEOUT,
    ProducerSettings,
)
from tidegate.connectors.kafka.producing import DELIVERY_TIMEOUT_MS, RecordProducer
from tidegate.connectors.kafka.record_serialization import KafkaRecordSerializationSchema, Message
from tidegate.connectors.kafka.transaction_ids import TransactionalIdNames, TransactionalIds
from tidegate.connectors.kafka.transactions import (
    BrokerTransactions,
    Described,
    KafkaTransaction,
    TransactionState,
)
from tidegate.connectors.sink import CommittingWriter, WriterContext
from tidegate.core.errors import ConfigError, KafkaFailed, StorageError
from tidegate.core.ids import CheckpointId
from tidegate.stream.batch import Batch

_WANTED_TIMEOUT_MS = 3_600_000
_USUAL_LIMIT_MS = 900_000
"""The default limit of brokers."""
_WARNING_RATIO = 0.8


@dataclass(slots=True)
class _OpenTransaction:
    """A producer with an open transaction; brokers open it with the first record."""

    transactional_id: str
    producer: RecordProducer
    described: Described


class TransactionalWriter(CommittingWriter):
    """A subtask of an exactly-once sink."""

    def __init__(
        self,
        settings: ProducerSettings,
        serializer: KafkaRecordSerializationSchema,
        names: TransactionalIdNames,
        transactions: BrokerTransactions,
        context: WriterContext,
    ) -> None:
        self._settings = settings
        self._timeout_ms = 0
        self._serializer = serializer
        self._names = names
        self._transactions = transactions
        self._context = context
        recovered: Sequence[KafkaTransaction] = context.recovered
        self._recovered = {each.transactional_id: each for each in recovered}
        self._ids = TransactionalIds(names, context.subtask, self._recovered)
        self._background = ThreadPoolExecutor(1, thread_name_prefix="tidegate-kafka-sink")
        self._next_id = self._ids.take()
        self._next: Future[_OpenTransaction] | None = None
        self._current: _OpenTransaction | None = None
        self._begun_at: dict[str, float] = {}
        """When uncommitted transactions got their first record, in seconds."""
        self._checkpoint = CheckpointId(0)

    # --- start -----------------------------------------------------------------------------------

    def open(self) -> None:
        # This client reports unreachable brokers, wrong passwords and missing topics best.
        RecordProducer(self._settings).connect(self._serializer.only_topic)
        self._timeout_ms = self._allowed_timeout_ms()
        self._abort_what_earlier_attempts_left()
        self._next = self._background.submit(self._make_ready, self._next_id)
        self._next.result()

    def _allowed_timeout_ms(self) -> int:
        limit = self._transactions.longest_timeout_ms()
        wanted = self._settings.client.get(TRANSACTION_TIMEOUT)
        if wanted is None:
            return min(_WANTED_TIMEOUT_MS, limit or _USUAL_LIMIT_MS)
        if limit is not None and wanted > limit:
            raise ConfigError(
                TRANSACTION_TIMEOUT,
                wanted,
                f"the brokers allow at most {limit}: lower it, or raise their "
                "transaction.max.timeout.ms",
            )
        return int(wanted)

    def _abort_what_earlier_attempts_left(self) -> None:
        """Includes ids without an open transaction: a disconnected process may still use them."""
        for found in self._transactions.ids_beginning_with(self._names.common):
            subtask = self._names.subtask_of(found)
            if subtask is None or subtask % self._context.parallelism != self._context.subtask:
                continue
            if not self._is_recovered(found):
                self._transactions.fence(found, self._timeout_ms, self._context.permit)

    def _is_recovered(self, transactional_id: str) -> bool:
        known = self._recovered.get(transactional_id)
        if known is None:
            return False
        found = self._transactions.describe(transactional_id)
        return (found.producer_id, found.epoch) == (known.producer_id, known.epoch)

    def _make_ready(self, transactional_id: str) -> _OpenTransaction:
        delivery_ms = self._settings.client.get(DELIVERY_TIMEOUT, DELIVERY_TIMEOUT_MS)
        producer = RecordProducer(
            self._settings.extended(
                transactional_id=transactional_id,
                transaction_timeout_ms=self._timeout_ms,
                delivery_timeout_ms=min(delivery_ms, self._timeout_ms),
            )
        )
        producer.connect(self._serializer.only_topic)
        producer.begin_transactions(self._context.permit)
        described = self._transactions.describe(transactional_id)
        return _OpenTransaction(transactional_id, producer, described)

    # --- records ---------------------------------------------------------------------------------

    def write(self, batch: Batch) -> None:
        self._serializer.send(batch, self._send)
        self._warn_of_late_transactions()

    def _send(self, topic: str, messages: Sequence[Message]) -> None:
        # Begin only with a message: a transaction without one cannot be prepared.
        current = self._current or self._begin()
        current.producer.send(topic, messages)

    def _begin(self) -> _OpenTransaction:
        assert self._next is not None
        if isinstance(self._next.exception(), (KafkaFailed, StorageError)):
            # That may be long ago: try again before the job fails.
            self._next = self._background.submit(self._make_ready, self._next_id)
        self._current = self._next.result()
        self._begun_at[self._current.transactional_id] = self._context.clock.time()
        self._next_id = self._ids.take()
        self._next = self._background.submit(self._make_ready, self._next_id)
        return self._current

    def flush(self, end_of_input: bool = False) -> None:
        if self._current is not None:
            self._current.producer.flush()
        self._warn_of_late_transactions()

    def snapshot(self, checkpoint_id: CheckpointId) -> None:
        self._checkpoint = checkpoint_id

    def prepare_commit(self) -> Sequence[KafkaTransaction]:
        if self._current is None:
            return ()
        prepared = self._confirmed(self._current)
        self._ids.prepared(prepared.transactional_id, self._checkpoint)
        self._current = None
        return (prepared,)

    def _confirmed(self, current: _OpenTransaction) -> KafkaTransaction:
        """Make the coordinator confirm that it can be committed, while failing is possible."""
        begun = current.described
        found = self._transactions.describe(current.transactional_id)
        is_same = (found.producer_id, found.epoch) == (begun.producer_id, begun.epoch)
        if not is_same or found.state is not TransactionState.OPEN or found.partition is None:
            raise KafkaFailed(
                self._settings.brokers,
                f"preparing the transaction {current.transactional_id!r}",
                "it is no longer open: it timed out, or another process uses its id",
            )
        return KafkaTransaction(
            current.transactional_id,
            begun.producer_id,
            begun.epoch,
            found.timeout_ms,
            self._transactions.first_record(begun.producer_id, *found.partition),
        )

    def notify_complete(self, checkpoint_id: CheckpointId) -> None:
        for each in self._ids.complete(checkpoint_id):
            self._begun_at.pop(each, None)

    def _warn_of_late_transactions(self) -> None:
        limit = timedelta(milliseconds=self._timeout_ms)
        now = self._context.clock.time()
        for each, begun_at in list(self._begun_at.items()):
            if now - begun_at >= _WARNING_RATIO * limit.total_seconds():
                del self._begun_at[each]
                self._context.console(
                    f"WARNING {self._context.operator_name} ({self._context.subtask + 1}): the "
                    f"transaction {each!r} is close to its timeout of {limit}, after which Kafka "
                    "aborts it: checkpoints take too long"
                )

    # --- end -------------------------------------------------------------------------------------

    def close(self) -> None:
        """Prepared transactions stay open: only a checkpoint decides about them."""
        self._background.shutdown(cancel_futures=True)
        try:
            if self._current is not None and self._context.permit.is_valid():
                self._current.producer.abort()
        finally:
            self._current = self._next = None
            self._transactions.close()
