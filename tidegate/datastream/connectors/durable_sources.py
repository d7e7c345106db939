"""A log for sources that cannot replay, and a source for pushed records."""

from __future__ import annotations

from tidegate.connectors.callback import CallbackSource, Emit
from tidegate.connectors.source import Source
from tidegate.operators.endpoints.source_function import SourceFunctionSource
from tidegate.operators.functions import SourceFunction

__all__ = ["CallbackSource", "Emit", "durable"]


def durable(source: Source | SourceFunction) -> Source:
    """Write each record of a source to a log next to the job's checkpoints before processing it.

    After a failure, the job reads the records after the checkpoint from the log, then continues
    with the source. Nothing in the log is lost or processed twice. One subtask reads the source.
    """
    if isinstance(source, SourceFunction):
        source = SourceFunctionSource(source)
    if not isinstance(source, Source):
        raise TypeError(f"durable() needs a Source or a SourceFunction, got {source!r}")
    return source.durable()
