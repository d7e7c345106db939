"""Records to the driver."""

from __future__ import annotations

from collections.abc import Callable

from tidegate.connectors.sink import Sink, SinkWriter, WriterContext
from tidegate.core.errors import InternalError
from tidegate.stream.batch import Batch


class CollectSink(Sink):
    """Delivers every batch to the collector of this name in the driver."""

    def __init__(self, name: str) -> None:
        self.name = name

    def create_writer(self, context: WriterContext) -> SinkWriter:
        if context.deliver is None:
            raise InternalError(f"nobody in the driver collects {self.name!r}")
        return _CollectWriter(self.name, context.deliver)


class _CollectWriter(SinkWriter):
    def __init__(self, name: str, deliver: Callable[[str, Batch], None]) -> None:
        self._name = name
        self._deliver = deliver

    def write(self, batch: Batch) -> None:
        self._deliver(self._name, batch)
