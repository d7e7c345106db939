"""Settings of a Kafka sink: those of the producer client, and Tidegate's own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tidegate.connectors.kafka.client_settings import librdkafka_settings
from tidegate.connectors.kafka.consumer_settings import PATIENCE
from tidegate.core.errors import ConfigError

TRANSACTION_TIMEOUT = "transaction.timeout.ms"
DELIVERY_TIMEOUT = "delivery.timeout.ms"
_OTHER_NAME = "message.timeout.ms"
_CONSUMERS_ONLY = ("group.id", "auto.offset.reset", "enable.auto.commit")


@dataclass(frozen=True, slots=True)
class ProducerSettings:
    """The properties of a sink, checked."""

    client: Mapping[str, Any]
    """Under librdkafka's names, including `bootstrap.servers`."""
    patience_seconds: float = 30.0
    """How long brokers may be unreachable before the job fails; messages in flight have their own
    delivery timeout."""

    @classmethod
    def of(cls, properties: Mapping[str, Any]) -> ProducerSettings:
        client = librdkafka_settings(properties)
        for name in _CONSUMERS_ONLY:
            client.pop(name, None)
        if _OTHER_NAME in client:
            client[DELIVERY_TIMEOUT] = client.pop(_OTHER_NAME)
        if not client.get("bootstrap.servers"):
            raise ConfigError(
                "bootstrap.servers", None, "give the brokers' addresses: set_bootstrap_servers()"
            )
        if "transactional.id" in client:
            raise ConfigError(
                "transactional.id",
                client["transactional.id"],
                "the sink creates its own ids: set their prefix with set_transactional_id_prefix()",
            )
        for name in (TRANSACTION_TIMEOUT, DELIVERY_TIMEOUT):
            if name in client:
                client[name] = _milliseconds(name, client[name])
        patience = _milliseconds(PATIENCE, client.pop(PATIENCE, 30_000))
        return cls(client, patience / 1000)

    @property
    def brokers(self) -> str:
        return str(self.client["bootstrap.servers"])

    def extended(self, **more: Any) -> ProducerSettings:
        """A copy with further properties; underscores stand for dots."""
        added = {name.replace("_", "."): value for name, value in more.items()}
        return ProducerSettings({**self.client, **added}, self.patience_seconds)


def _milliseconds(key: str, value: Any) -> int:
    try:
        number = int(value)
    except (TypeError, ValueError):
        number = 0
    if number <= 0:
        raise ConfigError(key, value, "give a whole number of milliseconds, above zero")
    return number
