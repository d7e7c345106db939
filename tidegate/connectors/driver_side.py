"""Sinks with a part in the driver."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

from tidegate.connectors.sink import Sink, SinkWriter, WriterContext
from tidegate.core.errors import InternalError
from tidegate.stream.batch import Batch
from tidegate.types.row import Row


class DriverSide(ABC):
    """The part of a sink that runs in the driver and receives what its committers deliver.

    Committers call `WriterContext.deliver(collector, batch)`; the records arrive here.
    """

    collector: str
    """The name under which committers deliver."""

    @abstractmethod
    def before_start(self) -> None:
        """Called before the job is sent to the slots; an exception ends the job."""

    @abstractmethod
    def delivered(self, record: Any) -> None:
        """Receive a record. Called on a separate thread, in order of arrival."""

    def ended(self) -> None:
        """No records follow, however the job has ended; its result waits for this call."""


class CollectSink(Sink):
    """Delivers every batch to the collector with this name in the driver."""

    def __init__(self, name: str) -> None:
        self.name = name

    def create_writer(self, context: WriterContext) -> SinkWriter:
        if context.deliver is None:
            raise InternalError(f"no collector in the driver is named {self.name!r}")
        return _CollectWriter(self.name, context.deliver)


class _CollectWriter(SinkWriter):
    def __init__(self, name: str, deliver: Callable[[str, Batch], None]) -> None:
        self._name = name
        self._deliver = deliver

    def write(self, batch: Batch) -> None:
        self._deliver(self._name, batch)


class PrintSink(Sink):
    """One line per record, in Flink's format.

    A line begins with the identifier and, if there are several subtasks, the number of the one that
    printed it: "words:2> (a,1)", "2> (a,1)", "words> (a,1)" or just "(a,1)". Records of typed
    streams look as in PyFlink, all others as `str()` shows them.
    """

    def __init__(self, identifier: str | None = None) -> None:
        self._identifier = identifier or ""

    def create_writer(self, context: WriterContext) -> SinkWriter:
        return _PrintWriter(_prefix(self._identifier, context), context.console)


def _prefix(identifier: str, context: WriterContext) -> str:
    parts = [identifier] if identifier else []
    if context.parallelism > 1:
        parts.append(str(context.subtask + 1))
    return f"{':'.join(parts)}> " if parts else ""


class _PrintWriter(SinkWriter):
    def __init__(self, prefix: str, console: Callable[[str], None]) -> None:
        self._prefix = prefix
        self._console = console

    def write(self, batch: Batch) -> None:
        prefix = self._prefix
        show = str if batch.format is None else printed
        if batch.format is not None:
            batch.columns  # noqa: B018 - raises for a record that is not of the declared type
        self._console("\n".join([prefix + show(record) for record in batch.records]))


def printed(record: Any) -> str:
    """A record of a typed stream as PyFlink prints it: PyFlink formats rows in Python."""
    if isinstance(record, Row):
        return f"{record.get_row_kind()}[{','.join(map(str, record))}]"
    return flink_text(record)


def flink_text(value: Any) -> str:
    """A value as Flink prints it: null, true, (a,1), +I[a, 1], [1, 2], {a=1}."""
    match value:
        case str():
            return value
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case tuple() if type(value) is tuple:
            return f"({','.join(map(flink_text, value))})"
        case Row():
            return f"{value.get_row_kind()}[{', '.join(map(flink_text, value))}]"
        case list():
            return f"[{', '.join(map(flink_text, value))}]"
        case dict():
            pairs = [f"{flink_text(key)}={flink_text(item)}" for key, item in value.items()]
            return f"{{{', '.join(pairs)}}}"
        case _:
            return str(value)
