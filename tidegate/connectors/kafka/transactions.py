"""Kafka transactions, as seen and ended by processes that did not begin them.

librdkafka can end a transaction only in the producer that began it, and a new producer with the
same transactional id aborts it. To commit after a crash, this module sends the request of the
original producer, with its producer id and epoch.
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
"""The version of the request that ends a transaction. From 5 on, the epoch changes with every
transaction, which librdkafka's producers do not support."""
_INIT_VERSION = 4
_BROKER = 4
"""The resource type of brokers in requests for settings."""
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
    """A flushed, open transaction, as a checkpoint stores it to commit it later.

    Every transaction has its own producer, so its producer id and epoch are unique.
    """

    transactional_id: str
    producer_id: int
    epoch: int
    timeout_ms: int
    first_record: FirstRecord | None
    """Its first record in one of its partitions; None if that cannot be read."""


class TransactionState(Enum):
    """The coordinator's view of the last transaction of an id."""

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
    """A partition that the transaction has written to."""


class BrokerTransactions:
    """Queries and ends transactions at the brokers."""

    def __init__(self, client: BrokerClient) -> None:
        self._client = client

    def commit(self, transaction: KafkaTransaction) -> None:
        """Commit a transaction, unless it is already committed.

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
        """The first record of a producer's open transaction in a partition."""

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
        """The transactional ids with this prefix that the brokers know."""

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
        """The brokers' limit for transaction timeouts; None if they do not reveal it."""

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

    def fence(self, transactional_id: str, timeout_ms: int, permit: Permit) -> None:
        """Abort the open transaction of this id, and fence its producer."""

        async def fence() -> None:
            # Also before it is repeated: the id may be a successor's by then.
            permit.require(takes_over=True)
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
    """Commits the transactions of checkpoints, whichever attempt began them."""

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
            f"the brokers have aborted it, because it stayed open longer than its "
            f"transaction.timeout.ms of {transaction.timeout_ms}, or because another producer uses "
            "its transactional id. Set transaction.timeout.ms, and transaction.max.timeout.ms of "
            "the brokers, above the checkpoint interval plus the longest downtime of the job"
        )
    return (
        f"the brokers answer {refusal.message}, "  # type: ignore[attr-defined]
        "and its records can no longer be read to see whether it was committed before"
    )
