"""What the subtasks of a slot emit during a unit, by channel and target.

Batches for subtasks in the same slot are passed on as they are; others are encoded.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from tidegate.core.ids import Attempt, EdgeId, SlotIndex, StepNumber, SubtaskIndex, VertexId
from tidegate.exchange.codec import Bytes, encoded_parts
from tidegate.exchange.partitioner import Share, create_partitioner, rescale_targets
from tidegate.exchange.spill import SpillStore
from tidegate.graph.job_graph import Edge, Vertex
from tidegate.graph.partitioning import Forward, Rescale
from tidegate.operators.base import OperatorContext
from tidegate.operators.user_code import USER_FAILURES, UserCode
from tidegate.protocol.packet import Channel, Packet, PacketHeader
from tidegate.slot.inspection import EdgeTap
from tidegate.stream.batch import Batch
from tidegate.stream.elements import StreamElement

PACKET_BYTES = 1 << 20
"""A packet of this size is complete: it can travel while the next one grows."""


class Outbox:
    """Collects the elements that the subtasks of one pipeline emit in one slot."""

    def __init__(self, slot: SlotIndex, attempt: Attempt, spill: SpillStore) -> None:
        self._spill = spill
        self._slot = slot
        self._attempt = attempt
        self._step = StepNumber(0)
        self._local: dict[VertexId, dict[Channel, list[StreamElement]]] = {}
        self._growing: dict[tuple[Channel, VertexId, int], list[Bytes]] = {}
        self._sizes: dict[tuple[Channel, VertexId, int], int] = {}
        self._sequences: dict[tuple[Channel, VertexId, int], int] = {}
        self._packets: list[Packet] = []
        self.sizes: dict[EdgeId, int] = {}
        """Bytes sent along each edge."""
        self.handed_over: Counter[VertexId] = Counter()
        """Bytes for the subtask of each vertex in this slot."""
        self.on_complete: Callable[[Packet], None] | None = None
        """Called with every packet that is complete before its unit is."""

    def begin_step(self, step: StepNumber) -> None:
        self._step = step
        self._sequences.clear()

    def put(self, channel: Channel, vertex: VertexId, target: int, element: StreamElement) -> None:
        if target == self._slot:
            size = size_of(element)
            self._count(channel.edge, size)
            self.handed_over[vertex] += size
            self._local.setdefault(vertex, {}).setdefault(channel, []).append(element)
            return
        lane = (channel, vertex, target)
        parts = encoded_parts(element)
        size = sum(map(len, parts))
        self._growing.setdefault(lane, []).extend(parts)
        self._count(channel.edge, size)
        self._sizes[lane] = self._sizes.get(lane, 0) + size
        if self._sizes[lane] >= PACKET_BYTES:
            packet = self._close(lane)
            if self.on_complete is not None:
                self.on_complete(packet)

    def _count(self, edge: EdgeId, size: int) -> None:
        self.sizes[edge] = self.sizes.get(edge, 0) + size

    def take_local(self, vertex: VertexId) -> dict[Channel, list[StreamElement]]:
        """The elements for the subtask of `vertex` in this slot."""
        return self._local.pop(vertex, {})

    def take_packets(self) -> list[Packet]:
        """All packets for other slots since the last call."""
        for lane in list(self._growing):
            self._close(lane)
        packets, self._packets = self._packets, []
        return packets

    def _close(self, lane: tuple[Channel, VertexId, int]) -> Packet:
        channel, vertex, target = lane
        sequence = self._sequences.get(lane, 0)
        self._sequences[lane] = sequence + 1
        header = PacketHeader(
            attempt=self._attempt,
            step=self._step,
            edge=channel.edge,
            source=channel.source,
            target_vertex=vertex,
            target_subtask=SubtaskIndex(target),
            sequence=sequence,
        )
        body = self._spill.keep(b"".join(self._growing.pop(lane)))
        self._sizes.pop(lane)
        packet = Packet(header, body)
        self._packets.append(packet)
        return packet


class ChannelWriter:
    """All channels of one edge that start in one subtask."""

    def __init__(
        self, edge: Edge, subtask: SubtaskIndex, source: Vertex, target: Vertex, outbox: Outbox
    ) -> None:
        self.edge = edge.id
        self.records = 0
        """How many records were written."""
        self.tap: EdgeTap | None = None
        """Samples what is written, if set."""
        self._is_open = False
        self._channel = Channel(edge.id, subtask)
        self._vertex = target.id
        self._format = edge.format
        self._outbox = outbox
        self._targets = targets_of(edge, subtask, source.parallelism, target.parallelism)
        self._partitioner = create_partitioner(
            edge.partitioning,
            subtask=subtask,
            parallelism=source.parallelism,
            targets=target.parallelism,
            key_groups=target.max_parallelism,
        )

    def open(self, context: OperatorContext) -> None:
        self._user_code = UserCode(context)
        self._is_watched = context.poison is not None
        self._is_open = True
        with self._user_code.guard():
            self._partitioner.open(context)

    def write(self, batch: Batch, input_index: int = 0) -> None:
        if batch.format is not self._format and batch.format != self._format:
            # The receiver decodes by the type of the edge.
            stamps = batch.timestamps
            batch = Batch(records=batch.records, format=self._format, timestamps=stamps)
        try:
            shares = self._split(batch)
        except USER_FAILURES as error:
            self._write_until_failure(batch)
            raise self._user_code.failure(error) from None
        with self._user_code.guard():
            self._put(shares)
        self.records += len(batch)
        if self.tap is not None:
            self._show(self.tap, batch)

    def _show(self, tap: EdgeTap, batch: Batch) -> None:
        if not tap.is_over:
            tap.take(batch)
        if tap.is_over:
            self.tap = None

    def _split(self, batch: Batch) -> Iterable[Share]:
        if self._is_watched and self._format is not None:
            _ = batch.columns  # find records of the wrong type before any is sent
        return self._partitioner.split(batch)

    def _write_until_failure(self, batch: Batch) -> None:
        """Send the records before one without a key or target, and report that one."""
        for position in range(len(batch)):
            single = batch.slice(position, position + 1)
            with self._user_code.guard(single.records[0], position):
                self._put(self._split(single))

    def _put(self, shares: Iterable[Share]) -> None:
        for target, share in shares:
            self._outbox.put(self._channel, self._vertex, target, share)

    def broadcast(self, element: StreamElement) -> None:
        """Send a watermark, a barrier or the end of input on every channel."""
        for target in self._targets:
            self._outbox.put(self._channel, self._vertex, target, element)

    on_watermark = on_watermark_status = broadcast

    def close(self) -> None:
        if self._is_open:
            self._is_open = False
            with self._user_code.guard():
                self._partitioner.close()


def size_of(element: StreamElement) -> int:
    """The approximate size in memory, in bytes."""
    if not isinstance(element, Batch):
        return 0
    return element.columns.nbytes if element.is_columnar else 64 * len(element)


def targets_of(edge: Edge, subtask: int, senders: int, targets: int) -> Sequence[int]:
    """The subtasks to which a sender has a channel."""
    match edge.partitioning:
        case Forward():
            return (subtask,)
        case Rescale():
            return rescale_targets(subtask, senders, targets)
        case _:
            return range(targets)


def channels_into(edge: Edge, subtask: int, senders: int, targets: int) -> list[Channel]:
    """The channels of an edge that end in a subtask: the inverse of `targets_of`."""
    return [
        Channel(edge.id, SubtaskIndex(sender))
        for sender in range(senders)
        if subtask in targets_of(edge, sender, senders, targets)
    ]
