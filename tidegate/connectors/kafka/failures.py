"""Translates errors of Kafka clients into Tidegate's errors."""

from __future__ import annotations

import threading
from datetime import timedelta
from typing import Any

from tidegate.core.errors import (
    ConfigError,
    KafkaFailed,
    KafkaRefused,
    TidegateError,
    UnreadableInput,
)

_PROBE_SECONDS = 2.0


def is_refusal(error: Any) -> bool:
    """Whether the brokers respond, but reject this client."""
    from confluent_kafka import KafkaError

    return error.code() in (
        KafkaError._AUTHENTICATION,
        KafkaError.SASL_AUTHENTICATION_FAILED,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    )


def as_error(error: Any, brokers: str, doing: str) -> TidegateError:
    """Translate an error of confluent-kafka."""
    if is_refusal(error):
        return KafkaRefused(brokers, error.str())
    return KafkaFailed(brokers, doing, error.str())


def bad_properties(whose: str, brokers: str, failed: Exception) -> ConfigError:
    """Translate an error about the properties of a client."""
    return ConfigError(
        f"properties of the Kafka {whose}",
        brokers,
        f"{failed.args[0].str()}; use properties of librdkafka, or those of the Java client that "
        "it supports",
    )


class ConnectionWatch:
    """Watches the errors of one client, and decides when they fail the job.

    A client reconnects forever. It reports once that all brokers are down, but not that they are
    back. A thread therefore asks them until one answers or the patience ends.
    """

    def __init__(self, brokers: str, doing: str, patience: timedelta) -> None:
        self.failure: TidegateError | None = None
        self.last_error = "no broker answered"
        self._brokers = brokers
        self._doing = doing
        self._patience = patience.total_seconds()
        self._client: Any = None
        self._closed = threading.Event()
        self._probing: threading.Thread | None = None

    def watch(self, client: Any) -> None:
        self._client = client

    def on_error(self, error: Any) -> None:
        """The client's `error_cb`."""
        from confluent_kafka import KafkaError

        if is_refusal(error):
            self.failure = KafkaRefused(self._brokers, error.str())
        elif error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
            self.failure = UnreadableInput(
                f"Kafka at {self._brokers}",
                error.str(),
                "the topic was deleted; start without the checkpoints that reference it",
            )
        elif error.code() != KafkaError._ALL_BROKERS_DOWN:
            self.last_error = error.str()
        elif self._client is not None and (self._probing is None or not self._probing.is_alive()):
            self._probing = threading.Thread(
                target=self._probe, name="tidegate-kafka-probe", daemon=True
            )
            self._probing.start()

    def _probe(self) -> None:
        from confluent_kafka import KafkaException

        left = self._patience
        while not self._closed.wait(0.1) and self.failure is None:
            try:
                self._client.list_topics(timeout=min(_PROBE_SECONDS, left))
                return
            except KafkaException:
                left -= _PROBE_SECONDS
            except RuntimeError:
                return  # the client was closed meanwhile
            if left <= 0:
                self.failure = KafkaFailed(self._brokers, self._doing, self.last_error)

    def close(self) -> None:
        """Call this before the client is closed: it must not be used afterwards."""
        self._closed.set()
        if self._probing is not None:
            self._probing.join()
