"""Brokers for the real Kafka sink: transactional ids, epochs, and logs with their markers.

A transaction is open until somebody ends it: it outlives its producer and its process. An end is
decided by the coordinator, and the markers in the logs follow some time later. A coordinator that
aborts by itself, or for another producer of the same id, does so with the next epoch.
"""

from __future__ import annotations

import struct
import zlib
from ast import literal_eval
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from kafka import errors as kafka_errors
from kafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder

from tests.sim.bank import Server
from tests.sim.clockwork import world

PARTITIONS = 2
NODES = 2
LONGEST_TIMEOUT_MS = 900_000
_BATCHES = 3
"""Of a log, how many are read at a time."""


class State(Enum):
    """Of the last transaction of an id, by the names that brokers use."""

    EMPTY = "Empty"
    ONGOING = "Ongoing"
    PREPARE_COMMIT = "PrepareCommit"
    PREPARE_ABORT = "PrepareAbort"
    COMPLETE_COMMIT = "CompleteCommit"
    COMPLETE_ABORT = "CompleteAbort"


_ENDING = (State.PREPARE_COMMIT, State.PREPARE_ABORT)


@dataclass
class TransactionalId:
    """What its coordinator knows."""

    name: str
    producer_id: int
    epoch: int
    timeout_ms: int
    state: State = State.EMPTY
    partitions: set[int] = field(default_factory=set)

    @property
    def transaction(self) -> str:
        return f"{self.name} {self.producer_id}.{self.epoch}"


@dataclass
class Log:
    """Of one partition."""

    batches: list[tuple[int, bytes]] = field(default_factory=list)
    """With the offset after each."""
    begun: dict[int, int] = field(default_factory=dict)
    """Where the open transactions begin, by producer id."""

    @property
    def end(self) -> int:
        return self.batches[-1][0] if self.batches else 0

    def append(self, producer_id: int, epoch: int, values: Sequence[bytes]) -> None:
        self.begun.setdefault(producer_id, self.end)
        self._append(producer_id, epoch, [(None, value) for value in values])

    def mark(self, producer_id: int, epoch: int, commits: bool) -> None:
        self.begun.pop(producer_id, None)
        self._append(producer_id, epoch, [(struct.pack(">hh", 0, commits), b"")], is_control=True)

    def _append(
        self,
        producer_id: int,
        epoch: int,
        records: Sequence[tuple[bytes | None, bytes]],
        *,
        is_control: bool = False,
    ) -> None:
        builder = DefaultRecordBatchBuilder(2, 0, 1, producer_id, epoch, 0, 1 << 20)
        for number, (key, value) in enumerate(records):
            builder.append(number, 0, key, value, [])
        batch = bytearray(builder.build())
        struct.pack_into(">q", batch, 0, self.end)
        if is_control:
            batch[DefaultRecordBatch.ATTRIBUTES_OFFSET + 1] |= DefaultRecordBatch.CONTROL_MASK
        self.batches.append((self.end + len(records), bytes(batch)))

    def read(self, offset: int) -> bytes:
        found = [batch for end, batch in self.batches if end > offset]
        return b"".join(found[:_BATCHES])


@dataclass
class Kafka(Server):
    """The brokers that one pipeline writes to."""

    ids: dict[str, TransactionalId] = field(default_factory=dict)
    logs: list[Log] = field(default_factory=lambda: [Log() for _ in range(PARTITIONS)])
    aborted_by_itself: set[str] = field(default_factory=set)
    """Ids of whose transactions one was aborted although it was prepared."""
    moves: int = 0
    loads_until: float = 0.0
    _producers: int = 0
    _sent: int = 0

    # --- what befalls them ------------------------------------------------------------------

    def restart(self, seconds: float) -> None:
        """Other brokers take over as leaders and coordinators."""
        self.moves += 1
        self.loads_until = world().sim.now + seconds

    def time_out(self, which: int) -> None:
        """The time of a transaction runs out."""
        ongoing = sorted(name for name, each in self.ids.items() if each.state is State.ONGOING)
        if ongoing:
            found = self.ids[ongoing[which % len(ongoing)]]
            self._drop(found)
            world().sim.note(f"    time runs out for {found.transaction}")
            self._fence(found)

    def lost(self, process: Any) -> None:
        """They do not notice."""

    def failure_of(self, what: str) -> Exception:
        failure: Exception = kafka_errors.KafkaConnectionError(f"no answer to {what}")
        return failure

    def is_lost(self, name: str) -> bool:
        return name in self.aborted_by_itself

    @property
    def settled(self) -> set[Any]:
        return super().settled.union(*self.open.values())

    # --- the coordinators -------------------------------------------------------------------

    def coordinator_of(self, name: str) -> int:
        return (zlib.crc32(name.encode()) + self.moves) % NODES

    def leader_of(self, partition: int) -> int:
        return (partition + self.moves) % NODES

    @property
    def is_loading(self) -> bool:
        return world().sim.now < self.loads_until

    def init(self, name: str, timeout_ms: int) -> TransactionalId:
        """Give the id to a new producer; what the last one has open is aborted first."""
        if timeout_ms > LONGEST_TIMEOUT_MS:
            raise kafka_errors.InvalidTxnTimeoutError
        found = self.ids.get(name)
        if found is None:
            self._producers += 1
            found = self.ids[name] = TransactionalId(name, self._producers, 0, timeout_ms)
            return found
        if found.state is State.ONGOING:
            self._fence(found)
        if found.state in _ENDING:
            raise kafka_errors.ConcurrentTransactionsError
        found.epoch += 1
        found.timeout_ms = timeout_ms
        found.state = State.EMPTY
        return found

    def take_over_late(self, name: str, timeout_ms: int) -> None:
        """A request to take an id over, which nobody waits for any more, arrives."""
        found = self.ids.get(name)
        if found is not None and found.state is State.ONGOING:
            self._drop(found)
        self.init(name, timeout_ms)

    def _drop(self, found: TransactionalId) -> None:
        """Nobody who knows what is prepared asks for this."""
        if found.transaction in self.prepared:
            self.aborted_by_itself.add(found.name)
            self.dropped += self.prepared[found.transaction]

    def later(self, act: Callable[[], None]) -> None:
        """A request that is not answered arrives later, if at all."""
        sim = world().sim

        def arrive() -> None:
            try:
                act()
            except kafka_errors.KafkaError as refusal:
                sim.note(f"    nobody hears of {refusal!r}")

        if sim.chance(0.3):
            sim.later(sim.delay(1.0), "a request arrives late", arrive)

    def _fence(self, found: TransactionalId) -> None:
        transaction = found.transaction
        found.epoch += 1
        self._decide(found, transaction, commits=False)

    def send(self, name: str, producer_id: int, epoch: int, values: Sequence[bytes]) -> None:
        """Messages of a producer; the first of a transaction begin it."""
        found = self.ids[name]
        if (found.producer_id, found.epoch) != (producer_id, epoch):
            raise kafka_errors.InvalidProducerEpochError
        if found.state in _ENDING:
            raise kafka_errors.ConcurrentTransactionsError
        if found.state is not State.ONGOING:
            found.state = State.ONGOING
            self.begun += 1
            self.open[found.transaction] = []
            self.owners[found.transaction] = world().sim.current
        self._sent += 1
        partition = self._sent % PARTITIONS
        found.partitions.add(partition)
        self.logs[partition].append(producer_id, epoch, values)
        transactions = self.open if found.transaction in self.open else self.prepared
        transactions[found.transaction] += [literal_eval(value.decode()) for value in values]

    def confirm(self) -> None:
        """A process asks where its transaction begins: that is prepared."""
        process = world().sim.current
        for transaction in [each for each in self.open if self.owners[each] is process]:
            self.prepared[transaction] = self.open.pop(transaction)
            self.prepared_by[transaction] = world().checks.prepares(self.pipeline)

    def end(self, name: str, producer_id: int, epoch: int, *, commits: bool) -> None:
        """Commit or abort; again if that was done before."""
        found = self.ids.get(name)
        if found is None or found.producer_id != producer_id:
            raise kafka_errors.InvalidProducerIdMappingError
        if found.epoch != epoch:
            raise kafka_errors.ProducerFencedError
        ending, ended = (
            (State.PREPARE_COMMIT, State.COMPLETE_COMMIT)
            if commits
            else (State.PREPARE_ABORT, State.COMPLETE_ABORT)
        )
        if found.state is State.ONGOING:
            self._decide(found, found.transaction, commits=commits)
        elif found.state is ending:
            raise kafka_errors.ConcurrentTransactionsError
        elif found.state is not ended:
            raise kafka_errors.InvalidTxnStateError

    def _decide(self, found: TransactionalId, transaction: str, *, commits: bool) -> None:
        found.state = State.PREPARE_COMMIT if commits else State.PREPARE_ABORT
        records = self.open.pop(transaction, None)
        if records is None:
            records = self.prepared.pop(transaction)
        if commits:
            self.committed[transaction] = records
            world().checks.commits(self, transaction, records)
            self.visible.update(records)
        sim = world().sim
        sim.later(sim.delay(0.02), "markers", lambda: self._mark(found, commits))

    def _mark(self, found: TransactionalId, commits: bool) -> None:
        for partition in sorted(found.partitions):
            self.logs[partition].mark(found.producer_id, found.epoch, commits)
        found.partitions.clear()
        found.state = State.COMPLETE_COMMIT if commits else State.COMPLETE_ABORT
