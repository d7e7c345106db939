"""Writes to Kafka without transactions: what is given again after a failure is there twice."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from tidegate.connectors.kafka.producer_settings import ProducerSettings
from tidegate.connectors.kafka.producing import RecordProducer
from tidegate.connectors.kafka.record_serialization import KafkaRecordSerializationSchema
from tidegate.connectors.sink import CommittingWriter
from tidegate.stream.batch import Batch


class PlainWriter(CommittingWriter):
    """One subtask of a sink whose messages are visible as soon as they arrive."""

    def __init__(
        self,
        settings: ProducerSettings,
        serializer: KafkaRecordSerializationSchema,
        *,
        waits_at_barriers: bool,
    ) -> None:
        self._settings = settings
        self._serializer = serializer
        self._waits_at_barriers = waits_at_barriers
        self._producer: RecordProducer | None = None

    def open(self) -> None:
        defaults = {"enable.idempotence": self._waits_at_barriers}
        self._producer = RecordProducer(
            replace(self._settings, client={**defaults, **self._settings.client})
        )
        self._producer.connect(self._serializer.only_topic)

    def write(self, batch: Batch) -> None:
        assert self._producer is not None
        self._serializer.send(batch, self._producer.send)

    def flush(self, end_of_input: bool = False) -> None:
        assert self._producer is not None
        if self._waits_at_barriers or end_of_input:
            self._producer.flush()
        else:
            self._producer.check()

    def prepare_commit(self) -> Sequence[Any]:
        return ()

    def close(self) -> None:
        if self._producer is not None:
            self._producer.purge()
            self._producer = None
