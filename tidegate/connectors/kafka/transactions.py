"""Transactions of Kafka as any process sees and ends them, not only the one that began them.

librdkafka ends a transaction only in the producer that began it, and a new producer of the same
transactional id aborts it. So that a commit works after a crash, it is asked for here by the
request that the producer itself would send, with its producer id and epoch.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

from kafka import errors as kafka_errors
from kafka.protocol.admin import (
    DescribeConfigsRequest,
    DescribeProducersRequest,
    DescribeTransactionsRequest,
    ListTransactionsRequest,
)
from kafka.protocol.producer.transaction import EndTxnRequest, InitProducerIdRequest

from tidegate.connectors.kafka.broker_client import BrokerClient, raise_for
from tidegate.connectors.kafka.transaction_log import FirstRecord, TransactionFate, fate_in_log
from tidegate.connectors.sink import Committer
from tidegate.core.errors import KafkaFailed, KafkaRefused, TransactionLost
from tidegate.core.permit import Permit

_END_VERSION = 4
"""Of the request that ends a transaction. From 5 on the epoch changes with every transaction,
which brokers expect of producers that work so throughout: those of librdkafka do not."""
_INIT_VERSION = 4
_BROKER = 4
"""The kind of resource that a broker is among those with settings."""
_REFUSED = (
    kafka_errors.ProducerFencedError,
    kafka_errors.InvalidProducerEpochError,
    kafka_errors.InvalidProducerIdMappingError,
    kafka_errors.InvalidTxnStateError,
    kafka_errors.TransactionalIdNotFoundError,
    kafka_errors.TransactionAbortableError,
)


@dataclass(frozen=True, slots=True)
class KafkaTransaction:
    """A transaction that is flushed and open: what a checkpoint holds to commit it.

    Every transaction has a producer of its own, so its id and epoch belong to no other one.
    """

    transactional_id: str
    producer_id: int
    epoch: int
    timeout_ms: int
    first_record: FirstRecord | None
    """Where its records begin in one of its partitions; None if that may not be read."""


class TransactionState(Enum):
    """What the coordinator knows of the last transaction of an id."""

    NONE = auto()
    OPEN = auto()
    ENDED = auto()


@dataclass(frozen=True, slots=True)
class Described:
    """The last transaction of an id, as its coordinator knows it."""

    producer_id: int
    epoch: int
    timeout_ms: int
    state: TransactionState
    partition: tuple[str, int] | None
    """One that the transaction has written to."""


class BrokerTransactions:
    """Asks brokers about transactions, and ends them."""

    def __init__(self, client: BrokerClient) -> None:
        self._client = client

    def commit(self, transaction: KafkaTransaction) -> None:
        """Commit it, if that was not done before.

        Raises:
            TransactionLost: It was aborted, or its outcome cannot be determined.
        """
        try:
            self._end(transaction)
        except _REFUSED as refusal:
            fate = self._fate(transaction)
            if fate is not TransactionFate.COMMITTED:
                raise TransactionLost(
                    f"Kafka at {self._client.brokers}",
                    transaction.transactional_id,
                    _reason(transaction, refusal, fate),
                ) from None

    def _end(self, transaction: KafkaTransaction) -> None:
        async def end() -> None:
            request = EndTxnRequest(
                transactional_id=transaction.transactional_id,
                producer_id=transaction.producer_id,
                producer_epoch=transaction.epoch,
                committed=True,
                max_version=_END_VERSION,
            )
            answer = await self._client.to_coordinator(transaction.transactional_id, request)
            raise_for(answer.error_code)

        self._client.ask("committing a transaction", end)

    def _fate(self, transaction: KafkaTransaction) -> TransactionFate:
        if transaction.first_record is None:
            return TransactionFate.UNKNOWN
        return fate_in_log(
            self._client, transaction.producer_id, transaction.epoch, transaction.first_record
        )

    def describe(self, transactional_id: str) -> Described:
        async def describe() -> Any:
            request = DescribeTransactionsRequest(transactional_ids=[transactional_id])
            answer = await self._client.to_coordinator(transactional_id, request)
            raise_for(answer.transaction_states[0].error_code)
            return answer.transaction_states[0]

        try:
            found = self._client.ask("looking at a transaction", describe)
        except kafka_errors.KafkaError as error:
            raise KafkaFailed(
                self._client.brokers, "looking at a transaction", str(error)
            ) from None
        partitions = [
            (topic.topic, number) for topic in found.topics for number in topic.partitions
        ]
        return Described(
            found.producer_id,
            found.producer_epoch,
            found.transaction_timeout_ms,
            _STATES.get(found.transaction_state, TransactionState.ENDED),
            min(partitions, default=None),
        )

    def first_record(self, producer_id: int, topic: str, partition: int) -> FirstRecord | None:
        """Where the open transaction of a producer begins in a partition."""

        async def describe() -> Any:
            wanted = DescribeProducersRequest.TopicRequest(
                name=topic, partition_indexes=[partition]
            )
            request = DescribeProducersRequest(topics=[wanted])
            answer = await self._client.to_leader(topic, partition, request)
            found = answer.topics[0].partitions[0]
            raise_for(found.error_code)
            return found

        with suppress(kafka_errors.BrokerResponseError, KafkaRefused):
            found = self._client.ask("looking at the producers of a partition", describe)
            for producer in found.active_producers:
                if producer.producer_id == producer_id and producer.current_txn_start_offset >= 0:
                    return FirstRecord(topic, partition, producer.current_txn_start_offset)
        return None

    def ids_beginning_with(self, prefix: str) -> list[str]:
        """The transactional ids that the brokers know."""

        async def all_ids() -> list[str]:
            answers = await self._client.to_all(
                lambda node: ListTransactionsRequest(state_filters=[], producer_id_filters=[])
            )
            for answer in answers:
                raise_for(answer.error_code)
            return [found.transactional_id for a in answers for found in a.transaction_states]

        found = self._client.ask("looking for transactions of earlier attempts", all_ids)
        return sorted({each for each in found if each.startswith(prefix)})

    def longest_timeout_ms(self) -> int | None:
        """How long the brokers let a transaction be open; None if they do not tell."""

        async def limits() -> list[Any]:
            return await self._client.to_all(_settings_of_broker)

        with suppress(kafka_errors.BrokerResponseError, KafkaRefused):
            answers = self._client.ask("looking at the settings of the brokers", limits)
            results = [result for answer in answers for result in answer.results]
            return min(
                (int(setting.value) for result in results for setting in result.configs),
                default=None,
            )
        return None

    def fence(self, transactional_id: str, timeout_ms: int) -> None:
        """Abort what is open under this id, and shut out the producer that still may use it."""

        async def fence() -> None:
            request = InitProducerIdRequest(
                transactional_id=transactional_id,
                transaction_timeout_ms=timeout_ms,
                producer_id=-1,
                producer_epoch=-1,
                max_version=_INIT_VERSION,
            )
            answer = await self._client.to_coordinator(transactional_id, request)
            raise_for(answer.error_code)

        self._client.ask("aborting a transaction of an earlier attempt", fence)

    def close(self) -> None:
        self._client.close()


class KafkaCommitter(Committer):
    """Commits the transactions that checkpoints hold, no matter which attempt began them."""

    def __init__(self, transactions: BrokerTransactions, permit: Permit) -> None:
        self._transactions = transactions
        self._permit = permit

    def commit(self, committables: Sequence[KafkaTransaction]) -> None:
        for transaction in committables:
            self._permit.require()
            self._transactions.commit(transaction)

    def close(self) -> None:
        self._transactions.close()


_STATES = {"Empty": TransactionState.NONE, "Ongoing": TransactionState.OPEN}


def _settings_of_broker(node: int) -> Any:
    broker = DescribeConfigsRequest.DescribeConfigsResource(
        resource_type=_BROKER,
        resource_name=str(node),
        configuration_keys=["transaction.max.timeout.ms"],
    )
    return DescribeConfigsRequest(resources=[broker])


def _reason(transaction: KafkaTransaction, refusal: Exception, fate: TransactionFate) -> str:
    if fate is TransactionFate.ABORTED:
        return (
            f"the brokers have aborted it, as they do when it stays open for longer than its "
            f"transaction.timeout.ms of {transaction.timeout_ms}, or when another producer takes "
            "its transactional id. Set transaction.timeout.ms, and transaction.max.timeout.ms of "
            "the brokers, above the time between two checkpoints and the longest time that the "
            "job may be down"
        )
    return (
        f"the brokers answer {refusal.message}, "  # type: ignore[attr-defined]
        "and its records can no longer be read to see whether it was committed before"
    )
