"""Reads partitions from exact offsets in one subtask."""

from __future__ import annotations

import logging
from collections.abc import Collection, Hashable, Sequence
from dataclasses import replace
from itertools import compress
from operator import methodcaller
from typing import Any

from tidegate.connectors.kafka.consumer_settings import ConsumerSettings, create_consumer
from tidegate.connectors.kafka.decoding import Decoder
from tidegate.connectors.kafka.failures import ConnectionWatch, as_error
from tidegate.connectors.kafka.offsets import KafkaOffsetResetStrategy
from tidegate.connectors.kafka.partitions import EARLIEST, KafkaSplit
from tidegate.connectors.source import InputStatus, Poll, SourceReader, Undecodable
from tidegate.core.errors import UndecodableRecord, UnreadableInput
from tidegate.core.ids import CheckpointId
from tidegate.stream.batch import Batch
from tidegate.types.arrow import collector_paused

_log = logging.getLogger(__name__)
_MOST_MESSAGES = 8192
"""More at once gain nothing: the objects would leave the CPU caches before they are used."""
_LOOK_AHEAD = 512
_PARTITION, _OFFSET = methodcaller("partition"), methodcaller("offset")


class KafkaReader(SourceReader):
    """Takes what the client has fetched in the background, and never waits for more.

    The enumerator assigns partitions, so readers do not join the group: it is only used to commit
    offsets.
    """

    def __init__(
        self,
        settings: ConsumerSettings,
        decoder: Decoder,
        reset: KafkaOffsetResetStrategy,
        name: str,
        undecodable: Undecodable,
        has_event_time: bool = False,
    ) -> None:
        self._settings = settings
        self._decoder = decoder
        self._reset = reset
        self._name = name
        self._undecodable = undecodable
        self._has_event_time = has_event_time
        self._watch = ConnectionWatch(settings.brokers, "reading records", settings.patience)
        self._splits: dict[tuple[str, int], KafkaSplit] = {}
        self._topics: set[str] = set()
        self._ahead: list[Any] = []
        self._paused: frozenset[Hashable] = frozenset()
        self._held: list[Any] = []
        """What the client had fetched of partitions before they were paused."""
        self._ended: list[tuple[str, int]] = []
        """Partitions read to their end since the last poll."""
        self._no_more = False
        self._client: Any = None

    def open(self) -> None:
        self._client = create_consumer(
            self._settings, self._name, error_cb=self._watch.on_error, on_commit=self._on_commit
        )
        self._watch.watch(self._client)

    def add_splits(self, splits: Sequence[KafkaSplit]) -> None:
        self._splits.update({_key(split): split for split in splits})
        self._topics.update(split.partition.topic for split in splits)
        self._ended += [_key(split) for split in splits if split.is_done]
        new = [_assigned(split) for split in splits if not split.is_done]
        if new:
            self._client.incremental_assign(new)

    def no_more_splits(self) -> None:
        self._no_more = True

    # --- reading --------------------------------------------------------------------------------

    def poll(self, max_records: int) -> Poll:
        if self._watch.failure is not None:
            raise self._watch.failure
        with collector_paused():
            return self._poll(min(max_records, _MOST_MESSAGES))

    def _poll(self, max_records: int) -> Poll:
        messages = self._next_records(max_records)
        if not messages:
            return Poll(None, self._status(), ended=self._ended_since())
        split = self._only_one_split(messages) if self._has_event_time else None
        positions = self._positions(messages)
        ends = self._ends_passed(positions) if self._settings.has_end else {}
        if ends:
            messages = [message for message in messages if self._is_wanted(message)]
            unfinished = {key: end for key, end in ends.items() if not self._splits[key].is_done}
            positions = self._positions(messages) | unfinished
        batch = self._decoded(messages, positions)
        found = batch if len(batch) else None
        return Poll(found, InputStatus.MORE_AVAILABLE, split, self._ended_since())

    def _ended_since(self) -> tuple[tuple[str, int], ...]:
        ended, self._ended = tuple(self._ended), []
        return ended

    def _only_one_split(self, messages: list[Any]) -> tuple[str, int]:
        """Keep the records of the first partition; the others follow with the next poll."""
        first = messages[0].topic(), messages[0].partition()
        for place, message in enumerate(messages):
            if message.partition() != first[1] or message.topic() != first[0]:
                self._ahead = messages[place:] + self._ahead
                del messages[place:]
                break
        return first

    def _status(self) -> InputStatus:
        if self._no_more and all(split.is_done for split in self._splits.values()):
            return InputStatus.END_OF_INPUT
        return InputStatus.NOTHING_AVAILABLE

    def _next_records(self, count: int) -> list[Any]:
        """The messages that are records; other events are handled here."""
        while messages := self._take(count):
            are_events = [message.error() is not None for message in messages]
            if True in are_events:
                first = are_events.index(True)
                self._ahead = messages[max(first, 1) :] + self._ahead
                if first == 0:
                    self._on_event(messages[0])
                    continue
                messages = messages[:first]
            return messages
        return []

    def _take(self, count: int) -> list[Any]:
        if self._ahead:
            taken, self._ahead = self._ahead[:count], self._ahead[count:]
            return taken
        return self._fetched(count)

    def _fetched(self, count: int) -> list[Any]:
        while messages := self._client.consume(count, 0) if self._splits else []:
            if wanted := self._without_held(messages):
                return wanted
        return []

    def _without_held(self, messages: list[Any]) -> list[Any]:
        """The messages without those of paused partitions, which come later."""
        if not self._paused:
            return messages
        is_held = [(m.topic(), m.partition()) in self._paused for m in messages]
        self._held += compress(messages, is_held)
        return [m for m, held in zip(messages, is_held, strict=True) if not held]

    def pause(self, splits: Collection[Hashable]) -> None:
        before, self._paused = self._paused, frozenset(splits)
        for change, keys in (
            (self._client.pause, self._paused - before),
            (self._client.resume, before - self._paused),
        ):
            # A partition that was read to its end is no longer assigned.
            found = [self._splits[key] for key in keys if key in self._splits]
            if living := [_assigned(split) for split in found if not split.is_done]:
                change(living)
        messages, self._held = [*self._held, *self._ahead], []
        self._ahead = self._without_held(messages)

    def _positions(self, messages: list[Any]) -> dict[tuple[str, int], int]:
        """The next offset of each partition after these messages."""
        if len(self._topics) == 1:
            [topic] = self._topics
            last = dict(zip(map(_PARTITION, messages), map(_OFFSET, messages), strict=True))
            return {(topic, partition): offset + 1 for partition, offset in last.items()}
        return {
            (message.topic(), message.partition()): message.offset() + 1 for message in messages
        }

    def _ends_passed(self, positions: dict[tuple[str, int], int]) -> dict[tuple[str, int], int]:
        """Partitions that were read past their end, which need not be the offset of a record."""
        stops = {key: self._splits[key].stop for key in positions}
        return {
            key: stop for key, stop in stops.items() if stop is not None and positions[key] > stop
        }

    def _is_wanted(self, message: Any) -> bool:
        split = self._splits[message.topic(), message.partition()]
        return split.stop is None or message.offset() < split.stop

    def _on_event(self, message: Any) -> None:
        """Handle an event of a partition."""
        from confluent_kafka import KafkaError

        error = message.error()
        if error.code() == KafkaError._PARTITION_EOF:
            self._reached(message.topic(), message.partition(), message.offset())
        elif error.code() == KafkaError._AUTO_OFFSET_RESET:
            self._out_of_range(message.topic(), message.partition())
        elif error.fatal() or not error.retriable():
            raise as_error(error, self._settings.brokers, "reading records")

    def _reached(self, topic: str, partition: int, offset: int) -> None:
        """Handle the end of a partition: transaction markers may follow its last record."""
        split = self._splits[topic, partition]
        if split.stop is not None and offset >= split.stop and not split.is_done:
            self._moved({(topic, partition): split.stop})

    def _out_of_range(self, topic: str, partition: int) -> None:
        split = self._splits[topic, partition]
        if self._reset is KafkaOffsetResetStrategy.NONE:
            raise UnreadableInput(
                f"{split.partition}, offset {split.position}",
                "the brokers do not have this offset",
                "start from a checkpoint whose records still exist, or set auto.offset.reset "
                "to 'earliest' or 'latest' to continue without the deleted records",
            )
        _log.warning(
            "%s, offset %d: the brokers no longer have this offset; reading continues from the %s "
            "one (auto.offset.reset), and the records in between are lost",
            split.partition,
            split.position,
            self._reset.value,
        )
        from confluent_kafka import OFFSET_BEGINNING, OFFSET_END

        is_earliest = self._reset is KafkaOffsetResetStrategy.EARLIEST
        target = _assigned(split)
        self._client.incremental_unassign([target])
        target.offset = OFFSET_BEGINNING if is_earliest else OFFSET_END
        self._client.incremental_assign([target])

    def _decoded(self, messages: list[Any], positions: dict[tuple[str, int], int]) -> Batch:
        """The records up to the first message that cannot be decoded.

        If that is the first message, it fails the job or is skipped.
        """
        batch, taken, problem = self._decoder.decode_some(messages)
        if problem is not None:
            if taken == 0:
                self._settle(messages[0], problem)
                taken = 1
            self._ahead = messages[taken:] + self._ahead
            positions = self._positions(messages[:taken])
        self._moved(positions)
        return batch

    def _settle(self, message: Any, problem: str) -> None:
        position = (
            f"topic {message.topic()!r}, partition {message.partition()}, offset {message.offset()}"
        )
        raw = message.value() or b""
        self._undecodable(position, raw, UndecodableRecord(position, raw, problem))

    def _moved(self, positions: dict[tuple[str, int], int]) -> None:
        """Record the progress, and drop partitions that have reached their stopping offset."""
        for key, position in positions.items():
            split = replace(self._splits[key], position=position)
            self._splits[key] = split
            if split.is_done:
                self._ended.append(key)
                self._client.incremental_unassign([_assigned(split)])

    reads_all_at_once = True

    def split_key(self, split: KafkaSplit) -> tuple[str, int] | None:
        return _key(split) if self._has_event_time else None

    # --- the rest of the contract ---------------------------------------------------------------

    def is_available(self) -> bool:
        if self._watch.failure is not None:
            return True
        if not self._ahead:
            self._ahead = self._fetched(_LOOK_AHEAD)
        return bool(self._ahead) or self._status() is InputStatus.END_OF_INPUT

    def snapshot(self) -> list[KafkaSplit]:
        """Includes finished partitions: their offsets are committed, and they stay finished."""
        return list(self._splits.values())

    def pending_records(self) -> int | None:
        pending = 0
        for split in self._splits.values():
            if split.position >= 0 and not split.is_done:
                _, end = self._client.get_watermark_offsets(_assigned(split), cached=True)
                pending += max(0, min(end, split.stop or end) - split.position)
        return pending

    def notify_complete(self, checkpoint_id: CheckpointId, splits: Sequence[KafkaSplit]) -> None:
        offsets = [_assigned(split) for split in splits if split.position >= 0]
        if offsets and self._settings.commits_offsets:
            self._client.commit(offsets=offsets, asynchronous=True)

    def _on_commit(self, error: Any, offsets: Sequence[Any]) -> None:
        """Log failures only: the job itself resumes from its checkpoints."""
        errors = [error, *(offset.error for offset in offsets)]
        for problem in filter(None, errors):
            _log.warning(
                "the offsets of group %r were not committed to %s: %s",
                self._settings.group_id,
                self._settings.brokers,
                problem,
            )
            return

    def close(self) -> None:
        self._watch.close()
        if self._client is not None:
            self._client.close()
            self._client = None


def _key(split: KafkaSplit) -> tuple[str, int]:
    return split.partition.topic, split.partition.partition


def _assigned(split: KafkaSplit) -> Any:
    """The split, at its position, as the client expects it."""
    from confluent_kafka import OFFSET_BEGINNING, TopicPartition

    offset = OFFSET_BEGINNING if split.position == EARLIEST else split.position
    return TopicPartition(split.partition.topic, split.partition.partition, offset)
