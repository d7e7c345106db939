"""A producer client of confluent-kafka, and a writer without transactions."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Producer

from tidegate.connectors.kafka.failures import as_error, bad_properties, is_refusal
from tidegate.connectors.kafka.producer_settings import DELIVERY_TIMEOUT, ProducerSettings
from tidegate.connectors.kafka.record_serialization import KafkaRecordSerializationSchema, Message
from tidegate.connectors.sink import CommittingWriter
from tidegate.core.errors import ConfigError, KafkaFailed, TidegateError, UnknownTopic
from tidegate.core.foreign_logs import foreign_logger
from tidegate.core.permit import Permit
from tidegate.stream.batch import Batch

DELIVERY_TIMEOUT_MS = 120_000
_ASK_SECONDS = 3.0
_ABORT_SECONDS = 5.0
_CHUNK = 10_000
"""Messages produced at a time; delivery reports are served in between."""
_WAIT_SECONDS = 0.1
_DEFAULTS = {
    # Choose the same partitions for keys as Java's producers.
    "partitioner": "murmur2_random",
    "queue.buffering.max.messages": 500_000,
    "linger.ms": 10,
    DELIVERY_TIMEOUT: DELIVERY_TIMEOUT_MS,
}
_OUT_OF_TIME = (KafkaError._TIMED_OUT, KafkaError._MSG_TIMED_OUT, KafkaError._TRANSPORT)
_log = logging.getLogger(__name__)


class RecordProducer:
    """Sends messages; errors name the topic. Used by one thread at a time."""

    def __init__(self, settings: ProducerSettings) -> None:
        self._brokers = settings.brokers
        self._patience_seconds = settings.patience_seconds
        self._reports = _Reports(self._brokers)
        self._topic: str | None = None
        try:
            self._producer = Producer(
                {
                    **_DEFAULTS,
                    **settings.client,
                    "delivery.report.only.error": True,
                    "on_delivery": self._reports.on_delivery,
                    "error_cb": self._reports.on_error,
                },
                logger=foreign_logger("librdkafka"),
            )
        except KafkaException as error:
            raise bad_properties("sink", self._brokers, error) from None

    def connect(self, topic: str | None) -> None:
        """Wait until a broker answers; it must know the topic, if there is only one."""
        self._topic = topic
        known = self._known_topics(topic)
        if topic is not None and known.topics[topic].error is not None:
            found = known.topics[topic].error
            if found.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise UnknownTopic(topic, self._brokers)
            if found.code() != KafkaError.LEADER_NOT_AVAILABLE:
                raise as_error(found, self._brokers, f"looking for the topic {topic!r}")

    def _known_topics(self, topic: str | None) -> Any:
        deadline = time.monotonic() + self._patience_seconds
        while True:
            seconds = min(_ASK_SECONDS, deadline - time.monotonic())
            try:
                return self._producer.list_topics(topic, timeout=max(seconds, 0.001))
            except KafkaException as error:
                failure = self._failed("connecting", error)
                if time.monotonic() > deadline or not isinstance(failure, KafkaFailed):
                    raise failure from None

    def begin_transactions(self, permit: Permit) -> None:
        """Take over the transactional id from its previous owner; after `connect`."""
        # The connection of the first answer is closed right away. Looking up the coordinator over
        # it would wait half a second; the second answer comes over a lasting connection.
        self._known_topics(self._topic)
        permit.require(takes_over=True)  # after all waiting: the id may be a successor's by then
        try:
            self._producer.init_transactions(self._patience_seconds)
            self._producer.begin_transaction()
        except KafkaException as error:
            raise self._failed("beginning a transaction", error) from None

    def send(self, topic: str, messages: Sequence[Message]) -> None:
        """Take the messages, waiting while the queue is full."""
        for start in range(0, len(messages), _CHUNK):
            self._send(topic, messages[start : start + _CHUNK])
            self._serve(0)

    def _send(self, topic: str, messages: Sequence[Message]) -> None:
        # The client's batch method is no faster, and supports neither timestamps nor headers.
        produce = self._producer.produce
        try:
            for value, key, timestamp, headers in messages:
                while True:
                    try:
                        produce(topic, value, key, -1, None, None, timestamp, headers)
                        break
                    except BufferError:
                        self._serve(_WAIT_SECONDS)
        except KafkaException as error:
            raise self._failed(f"writing to {topic!r}", error) from None

    def flush(self) -> None:
        """Wait until all messages are delivered."""
        try:
            while self._producer.flush(_WAIT_SECONDS):
                self.check()
        except KafkaException as error:
            raise self._failed("writing", error) from None
        self.check()

    def check(self) -> None:
        """Raise the failure since the last call, if any."""
        if self._reports.failure is not None:
            raise self._reports.failure

    def abort(self) -> None:
        """Abort the transaction; its messages must not become visible."""
        try:
            self._producer.purge()
            self._producer.abort_transaction(_ABORT_SECONDS)
        except KafkaException as error:
            _log.info("a transaction was not aborted, and will time out: %s", error)

    def purge(self) -> None:
        """Discard unsent messages, so that nothing waits for them."""
        self._producer.purge()

    def _serve(self, seconds: float) -> None:
        self._producer.poll(seconds)
        self.check()

    def _failed(self, doing: str, error: KafkaException) -> TidegateError:
        found: KafkaError = error.args[0]
        if found.code() == KafkaError.INVALID_TRANSACTION_TIMEOUT:
            return ConfigError(
                "transaction.timeout.ms",
                "too long",
                "the brokers allow less: lower it, or raise their transaction.max.timeout.ms",
            )
        self._producer.poll(0)
        return self._reports.failure or self._reports.explained(found, doing)


class _Reports:
    """Collects what the client reports while it is served.

    It holds no reference to the client, so that the client ends when nobody else holds one.
    """

    def __init__(self, brokers: str) -> None:
        self._brokers = brokers
        self._last_error: KafkaError | None = None
        self.failure: TidegateError | None = None

    def on_delivery(self, error: KafkaError | None, message: Any) -> None:
        if error is not None and self.failure is None:
            if error.code() in (KafkaError._UNKNOWN_TOPIC, KafkaError.UNKNOWN_TOPIC_OR_PART):
                self.failure = UnknownTopic(message.topic(), self._brokers)
            else:
                self.failure = self.explained(error, f"writing to {message.topic()!r}")

    def on_error(self, error: KafkaError) -> None:
        self._last_error = error
        if error.fatal() and self.failure is None:
            self.failure = as_error(error, self._brokers, "writing")

    def explained(self, error: KafkaError, doing: str) -> TidegateError:
        """Translate an error; timeouts are explained by what was reported meanwhile."""
        if error.code() in _OUT_OF_TIME and self._last_error is not None:
            if is_refusal(self._last_error):
                return as_error(self._last_error, self._brokers, doing)
            reason = f"{error.str()} ({self._last_error.str()})"
            return KafkaFailed(self._brokers, doing, reason)
        return as_error(error, self._brokers, doing)


class PlainWriter(CommittingWriter):
    """A subtask of a sink whose messages are visible as soon as they arrive.

    Messages sent again after a failure are duplicates.
    """

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
