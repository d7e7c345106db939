"""Requests to brokers that librdkafka cannot send: about transactions of other producers."""

from __future__ import annotations

import threading
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from kafka import errors as kafka_errors
from kafka.net.manager import KafkaConnectionManager
from kafka.net.selector import NetworkSelector
from kafka.protocol.metadata import CoordinatorType, FindCoordinatorRequest, MetadataRequest

from tidegate.connectors.kafka.client_settings import connection_settings
from tidegate.connectors.kafka.producer_settings import ProducerSettings
from tidegate.core.errors import KafkaFailed, KafkaRefused

Answer = TypeVar("Answer")

_REQUEST_TIMEOUT_MS = 15_000
_PAUSE_SECONDS = 0.05
_FORBIDDEN = (kafka_errors.AuthorizationError, kafka_errors.SaslAuthenticationFailedError)


class BrokerClient:
    """Sends requests to the responsible brokers, and retries where that may help.

    Thread-safe; sends one request at a time.
    """

    def __init__(self, settings: ProducerSettings) -> None:
        self.brokers = settings.brokers
        self._settings = settings
        self._lock = threading.Lock()
        self._manager: Any = None
        self._coordinators: dict[str, int] = {}

    @property
    def patience_seconds(self) -> float:
        return self._settings.patience_seconds

    def ask(self, doing: str, request: Callable[[], Awaitable[Answer]]) -> Answer:
        """Run a coroutine that calls the `to_…` methods, and return its answer.

        Raises:
            KafkaFailed: No broker answered in time.
            KafkaRefused: Access was denied.
            kafka.errors.BrokerResponseError: The brokers refuse the request for good.
        """
        deadline = time.monotonic() + self.patience_seconds
        while True:
            try:
                with self._lock:
                    return self._connected(deadline).run(request)  # type: ignore[no-any-return]
            except _FORBIDDEN as error:
                raise KafkaRefused(self.brokers, f"{doing}: {error}") from None
            except kafka_errors.KafkaError as error:
                if isinstance(error, kafka_errors.BrokerResponseError) and not error.retriable:
                    raise
                self.close()
                if time.monotonic() + _PAUSE_SECONDS > deadline:
                    raise KafkaFailed(self.brokers, doing, str(error)) from None
            time.sleep(_PAUSE_SECONDS)

    async def to_coordinator(self, transactional_id: str, request: Any) -> Any:
        node = self._coordinators.get(transactional_id)
        if node is None:
            kind = CoordinatorType.TRANSACTION.value
            asked = FindCoordinatorRequest(key=transactional_id, key_type=kind, max_version=3)
            found = await self._manager.send(asked)
            raise_for(found.error_code)
            node = self._coordinators[transactional_id] = found.node_id
        return await self._manager.send(request, node_id=node)

    async def to_leader(self, topic: str, partition: int, request: Any) -> Any:
        asked = MetadataRequest(
            topics=[MetadataRequest.MetadataRequestTopic(name=topic)],
            allow_auto_topic_creation=False,
        )
        found = (await self._manager.send(asked)).topics[0]
        raise_for(found.error_code)
        leaders = {each.partition_index: each.leader_id for each in found.partitions}
        if partition not in leaders:
            raise kafka_errors.UnknownTopicOrPartitionError
        return await self._manager.send(request, node_id=leaders[partition])

    async def to_all(self, request: Callable[[int], Any]) -> list[Any]:
        """Send a request to every broker, given its id; returns all answers."""
        nodes = [broker.node_id for broker in self._manager.cluster.brokers()]
        return [await self._manager.send(request(node), node_id=node) for node in nodes]

    def close(self) -> None:
        """Drop the connections, and what is known about leaders and coordinators."""
        with self._lock:
            manager, self._manager = self._manager, None
            self._coordinators.clear()
            if manager is not None:
                manager.close()
                manager._net.close()

    def _connected(self, deadline: float) -> Any:
        if self._manager is None:
            settings = connection_settings(self._settings.client)
            # No thread of its own: the network is served while waiting for an answer.
            self._manager = KafkaConnectionManager(
                NetworkSelector(**settings), **settings, request_timeout_ms=_REQUEST_TIMEOUT_MS
            )
            self._manager.bootstrap(max(1, int((deadline - time.monotonic()) * 1000)))
        return self._manager


def raise_for(error_code: int) -> None:
    """Raise the error for a broker's error code, if it is one."""
    error = kafka_errors.for_code(error_code)
    if error is not kafka_errors.NoError:
        raise error()
