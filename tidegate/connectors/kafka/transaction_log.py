"""Reads the outcome of a transaction from the log that it wrote to."""

from __future__ import annotations

import time
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

from kafka import errors as kafka_errors
from kafka.protocol.consumer import FetchRequest
from kafka.record import MemoryRecords

from tidegate.connectors.kafka.broker_client import BrokerClient, raise_for
from tidegate.core.errors import KafkaFailed, KafkaRefused

_FETCH_VERSION = 12
"""The last version that uses names of topics rather than ids."""
_FETCH_BYTES = 8 << 20
_WAIT_MS = 500
_COMMIT_MARKER = 1
_READING = "reading what became of a transaction"


@dataclass(frozen=True, slots=True)
class FirstRecord:
    """The first record of a transaction in a partition."""

    topic: str
    partition: int
    offset: int


class TransactionFate(Enum):
    """How a transaction ended."""

    COMMITTED = auto()
    ABORTED = auto()
    UNKNOWN = auto()
    """Its records cannot be read, or are deleted."""


def fate_in_log(
    client: BrokerClient, producer_id: int, epoch: int, first: FirstRecord
) -> TransactionFate:
    """Find the marker that ended a transaction.

    A producer has one transaction at a time, so this is the producer's first marker after the first
    record. Unlike readers of committed records, this does not wait for other transactions.

    Raises:
        KafkaFailed: The brokers could not answer; they may when they are asked again.
    """
    offset = first.offset
    deadline = time.monotonic() + client.patience_seconds
    while True:
        try:
            records = _fetch(client, first.topic, first.partition, offset)
        except (kafka_errors.OffsetOutOfRangeError, KafkaRefused):
            return TransactionFate.UNKNOWN
        except kafka_errors.BrokerResponseError as error:
            raise KafkaFailed(client.brokers, _READING, str(error)) from None
        for batch in MemoryRecords(records):
            if batch.is_control_batch and batch.producer_id == producer_id:
                return _fate(_kind(batch), batch.producer_epoch - epoch)
            offset = batch.next_offset
        if not records and time.monotonic() > deadline:
            raise KafkaFailed(
                client.brokers,
                "waiting for the end of a transaction that it will not commit",
                f"{first.topic}[{first.partition}] has no marker of it up to offset {offset}",
            )


def _fate(kind: int, newer_epochs: int) -> TransactionFate:
    if kind == _COMMIT_MARKER:
        # A marker of a later transaction: compaction has removed the one we need.
        return TransactionFate.COMMITTED if newer_epochs == 0 else TransactionFate.UNKNOWN
    # Brokers abort with the next epoch, which fences the producer.
    return TransactionFate.ABORTED if newer_epochs <= 1 else TransactionFate.UNKNOWN


def _fetch(client: BrokerClient, topic: str, partition: int, offset: int) -> bytes:
    async def fetch() -> Any:
        part = FetchRequest.FetchTopic.FetchPartition(
            partition=partition, fetch_offset=offset, partition_max_bytes=_FETCH_BYTES
        )
        request = FetchRequest(
            max_wait_ms=_WAIT_MS,
            min_bytes=1,
            max_bytes=_FETCH_BYTES,
            isolation_level=0,
            topics=[FetchRequest.FetchTopic(topic=topic, partitions=[part])],
            max_version=_FETCH_VERSION,
        )
        answer = await client.to_leader(topic, partition, request)
        raise_for(answer.error_code)
        found = answer.responses[0].partitions[0]
        raise_for(found.error_code)
        return found.records

    return bytes(client.ask(_READING, fetch) or b"")


def _kind(control_batch: Any) -> int:
    """The kind of a marker: its key holds a version and a kind, two bytes each."""
    record = next(iter(control_batch))
    return int.from_bytes(bytes(record.key)[2:4], "big", signed=True)
