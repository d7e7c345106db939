"""Settings of a Kafka source: those of the consumer client, and Tidegate's own."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from tidegate.connectors.kafka.client_settings import librdkafka_settings
from tidegate.connectors.kafka.failures import bad_properties
from tidegate.connectors.kafka.offsets import KafkaOffsetResetStrategy
from tidegate.core.errors import ConfigError, UserError
from tidegate.core.foreign_logs import foreign_logger

DISCOVERY_INTERVAL = "partition.discovery.interval.ms"
OLD_DISCOVERY_INTERVAL = "flink.partition-discovery.interval-millis"
COMMIT_OFFSETS = "commit.offsets.on.checkpoint"
CLIENT_ID_PREFIX = "client.id.prefix"
PATIENCE = "default.api.timeout.ms"
OFFSET_RESET = "auto.offset.reset"
_OURS = frozenset(
    {
        DISCOVERY_INTERVAL,
        OLD_DISCOVERY_INTERVAL,
        COMMIT_OFFSETS,
        CLIENT_ID_PREFIX,
        PATIENCE,
        OFFSET_RESET,
        "register.consumer.metrics",
        "max.poll.records",
        "auto.commit.interval.ms",
    }
)
_RENAMED = {"fetch.max.wait.ms": "fetch.wait.max.ms", "request.timeout.ms": "socket.timeout.ms"}
_QUICK = {
    # Fetch more from a partition as soon as its records are taken. By default the client waits for
    # a second, in which a fast reader is idle.
    "fetch.queue.backoff.ms": 10,
    "fetch.message.max.bytes": 4 << 20,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerSettings:
    """The properties of a source, checked."""

    properties: Mapping[str, Any] = field(default_factory=dict)
    """The user's properties, including `bootstrap.servers`."""
    has_end: bool = False
    """Whether partitions are read up to an offset, rather than without end."""

    def __post_init__(self) -> None:
        if not self.properties.get("bootstrap.servers"):
            raise ConfigError(
                "bootstrap.servers", None, "give the brokers' addresses: set_bootstrap_servers()"
            )
        if self.patience <= timedelta(0):
            raise ConfigError(PATIENCE, self.patience, "give milliseconds, above zero")
        _ = self.discovery_interval, self.offset_reset

    @property
    def brokers(self) -> str:
        return str(self.properties["bootstrap.servers"])

    @property
    def group_id(self) -> str | None:
        return self.properties.get("group.id") or None

    @property
    def commits_offsets(self) -> bool:
        wanted = str(self.properties.get(COMMIT_OFFSETS, True)).lower() == "true"
        return wanted and self.group_id is not None

    @property
    def discovery_interval(self) -> timedelta | None:
        """How often to look for new partitions; None: only once."""
        value = self.properties.get(OLD_DISCOVERY_INTERVAL, 300_000)
        milliseconds = self._milliseconds(DISCOVERY_INTERVAL, value)
        if self.has_end or milliseconds <= 0:
            return None
        return timedelta(milliseconds=milliseconds)

    @property
    def patience(self) -> timedelta:
        """How long brokers may be unreachable before the job fails."""
        return timedelta(milliseconds=self._milliseconds(PATIENCE, 30_000))

    @property
    def offset_reset(self) -> KafkaOffsetResetStrategy | None:
        value = self.properties.get(OFFSET_RESET)
        return None if value is None else KafkaOffsetResetStrategy.parse(value)

    def _milliseconds(self, key: str, default: Any) -> int:
        value = self.properties.get(key, default)
        try:
            return int(value)
        except (TypeError, ValueError):
            raise ConfigError(key, value, "give a whole number of milliseconds") from None

    def for_client(self, name: str) -> dict[str, Any]:
        """The configuration of a client of confluent-kafka."""
        settings = {
            _RENAMED.get(key, key): value
            for key, value in librdkafka_settings(self.properties).items()
            if key not in _OURS
        }
        prefix = self.properties.get(CLIENT_ID_PREFIX)
        if prefix:
            settings["client.id"] = f"{prefix}-{name}"
        return {
            **_QUICK,
            **settings,
            # A client requires a group even if nothing is ever committed for it.
            "group.id": self.group_id or f"tidegate-{uuid.uuid4().hex}",
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "enable.partition.eof": self.has_end,
            OFFSET_RESET: "error",
        }


def create_consumer(settings: ConsumerSettings, name: str, **callbacks: Any) -> Any:
    """Create a consumer client, which connects in the background.

    Raises:
        ConfigError: The client does not know a property, or refuses its value.
        UserError: The package is not installed.
    """
    try:
        from confluent_kafka import Consumer, KafkaException
    except ImportError:
        raise UserError(
            "Kafka needs the package confluent-kafka: pip install 'tidegate[kafka]'"
        ) from None
    configuration = settings.for_client(name) | callbacks
    try:
        return Consumer(configuration, logger=foreign_logger("librdkafka"))
    except KafkaException as error:
        raise bad_properties("source", settings.brokers, error) from None
