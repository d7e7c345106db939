"""A source for the other examples: like a Kafka topic with one partition, but in memory."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from tidegate.datastream.connectors.base import (
    Batch,
    InputStatus,
    KnownSplits,
    Poll,
    ReaderContext,
    Source,
    SourceReader,
    SplitEnumerator,
)


@dataclass(frozen=True)
class Partition:
    """What to read, and from which offset on: the position that a checkpoint holds."""

    topic: str
    offset: int


class Topic(Source):
    """Messages that come in bursts, each when a checkpoint holds everything before it."""

    def __init__(self, name: str, bursts: Sequence[Sequence[str]], first_offset: int = 0) -> None:
        self.name = name
        self.messages = [message for burst in bursts for message in burst]
        self.starts = list(accumulate(map(len, bursts), initial=first_offset))

    def create_enumerator(self) -> SplitEnumerator:
        return KnownSplits(lambda parallelism: [Partition(self.name, self.starts[0])])

    def create_reader(self, context: ReaderContext) -> SourceReader:
        return TopicReader(self)

    def max_readers(self) -> int:
        return 1


class TopicReader(SourceReader):
    """Reads what is there. `offset` is that of the next message, `end` of the next to come."""

    def __init__(self, topic: Topic) -> None:
        self.topic = topic
        self.offset = self.end = topic.starts[0]

    def add_splits(self, splits: Sequence[Partition]) -> None:
        for partition in splits:
            self.offset = partition.offset
            if self.offset > self.topic.starts[0]:
                self._arrive(behind=self.offset)

    def poll(self, max_records: int) -> Poll:
        first = self.topic.starts[0]
        messages = self.topic.messages[self.offset - first : self.end - first][:max_records]
        self.offset += len(messages)
        return Poll(Batch.of_records(messages) if messages else None, self._status())

    def is_available(self) -> bool:
        return self._status() is not InputStatus.NOTHING_AVAILABLE

    def snapshot(self) -> list[Partition]:
        return [Partition(self.topic.name, self.offset)]

    def notify_complete(self, checkpoint_id: int, splits: Sequence[Partition]) -> None:
        for partition in splits:
            self._arrive(behind=partition.offset)

    def _arrive(self, behind: int) -> None:
        self.end = min((start for start in self.topic.starts if start > behind), default=behind)

    def _status(self) -> InputStatus:
        if self.offset == self.topic.starts[-1]:
            return InputStatus.END_OF_INPUT
        is_there = self.offset < self.end
        return InputStatus.MORE_AVAILABLE if is_there else InputStatus.NOTHING_AVAILABLE
