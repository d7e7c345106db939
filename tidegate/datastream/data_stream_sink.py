"""The end of a stream."""

from __future__ import annotations

from tidegate.datastream.execution.operator_settings import OperatorSettings
from tidegate.graph.logical import Transformation


class DataStreamSink(OperatorSettings):
    """A sink of a stream; the job runs when the environment is executed."""

    def __init__(self, transformation: Transformation) -> None:
        self._transformation = transformation

    def _operator(self, call: str) -> Transformation:
        return self._transformation

    def __repr__(self) -> str:
        return f"<DataStreamSink {self._transformation.name!r}>"
