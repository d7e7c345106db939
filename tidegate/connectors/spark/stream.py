"""Streaming DataFrames of Structured Streaming as a source."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

from pyspark.sql import DataFrame

from tidegate.connectors.guarantee import Replay
from tidegate.connectors.source import (
    Boundedness,
    ReaderContext,
    Source,
    SourceReader,
    SplitEnumerator,
)
from tidegate.connectors.spark.staging import StagedReader
from tidegate.connectors.spark.stream_batches import StreamBatches
from tidegate.core.errors import GraphError
from tidegate.types.spark import type_info_of_spark
from tidegate.types.typeinfo import TypeInformation

_STATEFUL = (
    "Aggregate",
    "Deduplicate",
    "Distinct",
    "FlatMapGroups",
    "GlobalLimit",
    "TransformWithState",
)
"""Name prefixes of stateful operators."""


class SparkStreamSource(Source):
    """The rows of a streaming DataFrame.

    Spark computes its micro-batches and writes them as Parquet files; their offsets are part of
    every checkpoint. The DataFrame itself stays in the driver.
    """

    def __init__(
        self,
        frame: DataFrame,
        temporary: Callable[[], str],
        *,
        every: timedelta | None = None,
        bounded: bool = False,
    ) -> None:
        if not frame.isStreaming:
            raise GraphError(
                "from_streaming_dataframe() takes a DataFrame of spark.readStream, but this one is "
                "bounded: use from_dataframe()"
            )
        if bounded and every is not None:
            raise GraphError(
                "a bounded stream takes existing rows at once: set either bounded=True or every"
            )
        _refuse_state(frame)
        self._type = type_info_of_spark(frame.schema)
        sources = [node for node in _nodes(_plan(frame)) if not _children(node)]
        self._reads_socket = any("socket" in str(node.toString()).lower() for node in sources)
        self._driver_only: tuple[DataFrame, Callable[[], str]] | None = (frame, temporary)
        self._trigger: dict[str, Any] | None = None
        if bounded:
            self._trigger = {"availableNow": True}
        elif every is not None:
            milliseconds = round(every.total_seconds() * 1000)
            self._trigger = {"processingTime": f"{milliseconds} milliseconds"}
        self.boundedness = Boundedness.BOUNDED if bounded else Boundedness.CONTINUOUS_UNBOUNDED

    def create_enumerator(self) -> SplitEnumerator:
        assert self._driver_only is not None
        frame, temporary = self._driver_only
        return StreamBatches(frame, self._trigger, temporary)

    def create_reader(self, context: ReaderContext) -> SourceReader:
        return StagedReader(context)

    def produced_type(self) -> TypeInformation:
        return self._type

    def replay(self) -> Replay:
        if self._reads_socket:
            return Replay(False, "reads a socket, which cannot replay")
        return Replay(True, "replays from the offsets of Structured Streaming")

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_driver_only": None}


def _refuse_state(frame: DataFrame) -> None:
    for node in _nodes(_plan(frame)):
        children = _children(node)
        name = str(node.nodeName())
        is_join = name == "Join" and all(child.isStreaming() for child in children)
        if node.isStreaming() and (is_join or name.startswith(_STATEFUL)):
            raise GraphError(
                f"the streaming DataFrame keeps state in Spark ({name}), which checkpoints "
                "of Tidegate do not include: aggregate, join or deduplicate rows in the stream, "
                "not in Spark"
            )


def _plan(frame: DataFrame) -> Any:
    return frame._jdf.queryExecution().analyzed()


def _nodes(plan: Any) -> Iterator[Any]:
    yield plan
    for child in _children(plan):
        yield from _nodes(child)


def _children(node: Any) -> list[Any]:
    children = node.children()
    return [children.apply(i) for i in range(children.size())]
