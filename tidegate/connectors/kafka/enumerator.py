"""Discovers the partitions of topics, including new ones, on its own thread."""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from typing import Any, TypeVar

from tidegate.connectors.kafka.consumer_settings import ConsumerSettings, create_consumer
from tidegate.connectors.kafka.failures import ConnectionWatch, as_error, is_refusal
from tidegate.connectors.kafka.offsets import KafkaOffsetsInitializer, OffsetLookup, Offsets
from tidegate.connectors.kafka.partitions import (
    EARLIEST,
    KafkaSplit,
    KafkaTopicPartition,
    Subscription,
)
from tidegate.connectors.source import SplitEnumerator
from tidegate.core.errors import KafkaFailed, TidegateError, UnknownTopic, UnreadableInput

_log = logging.getLogger(__name__)
_FIRST_ANSWER_SECONDS = 1.0
_REQUEST_SECONDS = 1.0
_DOING = "looking for partitions"
Answer = TypeVar("Answer")


class PartitionDiscovery(SplitEnumerator):
    """Every partition is a split; its starting offset is resolved when it is found.

    Partitions that exist when a job starts are read from its starting offsets, later ones from
    their first record.
    """

    def __init__(
        self,
        subscription: Subscription,
        starting: KafkaOffsetsInitializer,
        stopping: KafkaOffsetsInitializer | None,
        settings: ConsumerSettings,
    ) -> None:
        self._subscription = subscription
        self._starting = starting
        self._stopping = stopping
        self._settings = settings
        self._known: set[KafkaTopicPartition] = set()
        self._waiting: list[KafkaSplit] = []
        self._has_begun = False
        self._found: queue.SimpleQueue[list[KafkaSplit] | Exception] = queue.SimpleQueue()
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None

    def next_splits(self, parallelism: int) -> dict[int, list[Any]]:
        if self._thread is None and (not self._has_begun or self._settings.discovery_interval):
            self._start()
        while not self._found.empty():
            self._take(self._found.get())
        waiting, self._waiting = self._waiting, []
        hands: dict[int, list[Any]] = {}
        for split in waiting:
            hands.setdefault(split.partition.reader(parallelism), []).append(split)
        return hands

    def _start(self) -> None:
        self._thread = threading.Thread(
            target=self._discover,
            args=(set(self._known), self._has_begun),
            name="tidegate-kafka-partitions",
            daemon=True,
        )
        self._thread.start()
        if not self._has_begun:
            # Reachable brokers answer within this time, so that the first step already reads.
            try:
                self._take(self._found.get(timeout=_FIRST_ANSWER_SECONDS))
            except queue.Empty:
                pass

    def _take(self, found: list[KafkaSplit] | Exception) -> None:
        if isinstance(found, Exception):
            raise found
        self._has_begun = True
        self._known.update(split.partition for split in found)
        self._waiting += found

    def is_ready(self) -> bool:
        return self._has_begun

    def is_exhausted(self) -> bool:
        return (
            self._has_begun
            and not self._waiting
            and self._found.empty()
            and self._settings.discovery_interval is None
        )

    def add_back(self, splits: Sequence[Any]) -> None:
        self._waiting.extend(splits)

    def snapshot(self) -> Any:
        return sorted(self._known), list(self._waiting), self._has_begun

    def restore(self, state: Any) -> None:
        if state is not None:
            known, waiting, self._has_begun = state
            self._known, self._waiting = set(known), list(waiting)
        if self._has_begun and self._settings.discovery_interval is None:
            self._refuse_additions()

    def _refuse_additions(self) -> None:
        """Nothing is looked for any more: what the program has added would never be read."""
        topics = {partition.topic for partition in self._known}
        added = [repr(name) for name in self._subscription.topics if name not in topics]
        added += [str(each) for each in self._subscription.partitions if each not in self._known]
        if added:
            raise UnreadableInput(
                ", ".join(added),
                "not part of the restored state of the source, which does not look for partitions "
                "again",
                "read it with a source of its own, or start without this state",
            )

    def close(self) -> None:
        self._closed.set()

    # --- on the thread --------------------------------------------------------------------------

    def _discover(self, known: set[KafkaTopicPartition], has_begun: bool) -> None:
        try:
            with closing(KafkaCluster(self._settings, self._closed)) as cluster:
                self._look(cluster, known, has_begun)
        except Exception as error:  # otherwise, the source would wait forever
            self._found.put(error)

    def _look(
        self, cluster: KafkaCluster, known: set[KafkaTopicPartition], has_begun: bool
    ) -> None:
        interval = self._settings.discovery_interval
        while not self._closed.is_set():
            try:
                found = self._splits(cluster, known, is_first=not has_begun)
            except TidegateError as error:
                if not has_begun:
                    raise
                _log.warning("new partitions of %s: %s", self._subscription, error)
            else:
                known |= {split.partition for split in found}
                if found or not has_begun:
                    self._found.put(found)
                has_begun = True
            if interval is None or self._closed.wait(interval.total_seconds()):
                return

    def _splits(
        self, cluster: KafkaCluster, known: set[KafkaTopicPartition], is_first: bool
    ) -> list[KafkaSplit]:
        present = cluster.partitions(self._subscription)
        new = [partition for partition in present if partition not in known]
        if not is_first:
            if new:
                _log.info("new partitions: %s", "; ".join(map(str, new)))
            return [KafkaSplit(partition, EARLIEST) for partition in new]
        if not new and self._settings.discovery_interval is None:
            raise cluster.nothing_there(str(self._subscription))
        starts = self._starting.resolve(new, cluster)
        stops = {} if self._stopping is None else self._stopping.resolve(new, cluster)
        return [KafkaSplit(partition, starts[partition], stops.get(partition)) for partition in new]


class KafkaCluster(OffsetLookup):
    """What brokers know about topics; waits for them within the patience."""

    def __init__(self, settings: ConsumerSettings, closed: threading.Event) -> None:
        self._settings = settings
        self._closed = closed
        self._watch = ConnectionWatch(settings.brokers, _DOING, settings.patience)
        self._client = create_consumer(settings, "enumerator", error_cb=self._watch.on_error)

    def partitions(self, subscription: Subscription) -> list[KafkaTopicPartition]:
        """The existing partitions; raises UnknownTopic if a named one does not exist."""
        topics = self._ask(lambda: self._client.list_topics(timeout=_REQUEST_SECONDS)).topics
        for topic in topics.values():
            if topic.error is not None and topic.topic in subscription.topics:
                raise as_error(topic.error, self._settings.brokers, f"looking at {topic.topic!r}")
        try:
            return subscription.select({name: topic.partitions for name, topic in topics.items()})
        except KeyError as missing:
            wanted = missing.args[0]
            if isinstance(wanted, KafkaTopicPartition):
                raise self.nothing_there(str(wanted)) from None
            raise UnknownTopic(wanted, self._settings.brokers) from None

    def nothing_there(self, name: str) -> UnreadableInput:
        return UnreadableInput(
            name, f"does not exist at {self._settings.brokers}", "create it, or correct its name"
        )

    def ends(self, partitions: Sequence[KafkaTopicPartition]) -> Offsets:
        return {partition: self._end(partition) for partition in partitions}

    def _end(self, partition: KafkaTopicPartition) -> int:
        asked = _named(partition)
        marks = self._ask(
            lambda: self._client.get_watermark_offsets(asked, timeout=_REQUEST_SECONDS)
        )
        return int(marks[1])

    def committed(self, partitions: Sequence[KafkaTopicPartition]) -> Offsets:
        if self._settings.group_id is None:
            return {}
        asked = [_named(partition) for partition in partitions]
        found = self._offsets(lambda: self._client.committed(asked, timeout=_REQUEST_SECONDS))
        for partition, offset in found.items():
            name = f"{partition.topic}-{partition.partition}"
            _log.info("Setting offset for partition %s to the committed offset %d", name, offset)
        return found

    def at(self, partitions: Sequence[KafkaTopicPartition], timestamp: int) -> Offsets:
        asked = [_named(partition, timestamp) for partition in partitions]
        return self._offsets(
            lambda: self._client.offsets_for_times(asked, timeout=_REQUEST_SECONDS)
        )

    def _offsets(self, question: Callable[[], Sequence[Any]]) -> Offsets:
        """The offsets of the partitions that have one; each answer may be an error instead."""
        from confluent_kafka import KafkaException

        def answers() -> Sequence[Any]:
            found = question()
            for answer in found:
                if answer.error is not None:
                    raise KafkaException(answer.error)
            return found

        return {
            KafkaTopicPartition(answer.topic, answer.partition): answer.offset
            for answer in self._ask(answers)
            if answer.offset >= 0
        }

    def _ask(self, question: Callable[[], Answer]) -> Answer:
        from confluent_kafka import KafkaException

        deadline = time.monotonic() + self._settings.patience.total_seconds()
        while True:
            try:
                return question()
            except KafkaException as failed:
                self._client.poll(0)
                if self._watch.failure is not None:
                    raise self._watch.failure from None
                error = failed.args[0]
                if is_refusal(error):
                    raise as_error(error, self._settings.brokers, _DOING) from None
                if self._closed.is_set() or time.monotonic() > deadline:
                    reason = f"{error.str()} ({self._watch.last_error})"
                    raise KafkaFailed(self._settings.brokers, _DOING, reason) from None
                self._closed.wait(0.1)

    def close(self) -> None:
        self._client.close()


def _named(partition: KafkaTopicPartition, offset: int | None = None) -> Any:
    from confluent_kafka import TopicPartition

    if offset is None:
        return TopicPartition(partition.topic, partition.partition)
    return TopicPartition(partition.topic, partition.partition, offset)
