"""A log for sources that cannot replay, and a source for pushed records."""

from __future__ import annotations

from tidegate.connectors.callback import CallbackSource, Emit
from tidegate.connectors.source import Source
from tidegate.operators.endpoints.source_function import SourceFunctionSource
from tidegate.operators.functions import SourceFunction

__all__ = ["CallbackSource", "Emit", "durable"]


def durable(source: Source | SourceFunction) -> Source:
    """The same records, each in a log beside the job's checkpoints before it is processed.

    After a failure those after the checkpoint are read from there, and then the source continues:
    nothing that was in the log is lost, nothing comes twice. It is read by one subtask.
    """
    if isinstance(source, SourceFunction):
        source = SourceFunctionSource(source)
    if not isinstance(source, Source):
        raise TypeError(f"durable() needs a Source or a SourceFunction, got {source!r}")
    return source.durable()
