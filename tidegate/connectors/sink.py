"""What a sink is: one writer per subtask."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

from tidegate.stream.batch import Batch


@dataclass(frozen=True, slots=True)
class WriterContext:
    """Who the writer is, and what it may use."""

    subtask: int
    parallelism: int
    operator_name: str
    console: Callable[[str], None]
    """Prints a line where the user of the job sees it."""
    deliver: Callable[[str, Batch], None] | None = None
    """Hands a batch to the collector of this name in the driver."""


class SinkWriter(ABC):
    """Writes in one subtask. All methods are called by one thread."""

    def open(self) -> None:
        """Called once before anything else."""

    @abstractmethod
    def write(self, batch: Batch) -> None:
        """Take the records, in order. They need not be visible before the next `flush`."""

    def flush(self, end_of_input: bool = False) -> None:
        """Make everything written so far arrive: a barrier, or the end, is here."""

    def close(self) -> None:
        """Release everything, also after an `open` that raised; what is not flushed may be lost."""


class Sink(ABC):
    """A sink as the user names it in a program. Travels pickled."""

    @abstractmethod
    def create_writer(self, context: WriterContext) -> SinkWriter:
        """A new writer, in a slot."""
