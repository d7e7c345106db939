"""`CachedDataStream`: a bounded stream that one job computes and later jobs read again."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Self

from tidegate.connectors.files.kept_batches import BatchEncoding, BatchFormat
from tidegate.connectors.files.sink import FileSink
from tidegate.connectors.files.source import FileSource
from tidegate.core.errors import GraphError
from tidegate.datastream.data_stream import DataStream
from tidegate.datastream.execution.program import unbounded_sources
from tidegate.operators.endpoints.operators import SinkOperator
from tidegate.operators.stateless import PassOperator
from tidegate.protocol.job_status import JobStatus

if TYPE_CHECKING:
    from tidegate.driver.job_handle import JobHandle


class CachedDataStream(DataStream):
    """The first job that reads it writes its records to files; later jobs read the files.

    The files are in the exchange directory of the environment and are deleted with it.
    """

    def __init__(self, stream: DataStream) -> None:
        upstreams = stream._transform("Cache", PassOperator(), stream._type)._upstreams
        super().__init__(stream._environment, upstreams, stream._type)
        self._computed_from = stream._upstreams
        self._directory: str | None = None
        self._job: JobHandle | None = None
        """The job that writes the directory."""
        self._environment._caches.append(self)

    def cache(self) -> Self:
        """This stream, which is already cached."""
        return self

    def invalidate(self) -> None:
        """Drop the records: the next job that reads the stream computes and caches it again."""
        transformation = self._upstreams[0].transformation
        if transformation.source is not None:
            transformation.source, transformation.operator = None, PassOperator()
            transformation.inputs = self._computed_from
        self._directory = self._job = None

    def _prepare(self, directory: str) -> None:
        """Prepare for planning a job that reads the stream: read the files, or write them."""
        transformation = self._upstreams[0].transformation
        if transformation.source is not None:
            return
        if self._job is not None and self._job.status() is JobStatus.FINISHED:
            assert self._directory is not None
            transformation.source = FileSource(self._directory, BatchFormat())
            transformation.operator, transformation.inputs = None, ()
            return
        unbounded = unbounded_sources([transformation])
        if unbounded:
            raise GraphError(
                f"cache() needs a stream that ends, but the source {unbounded[0]!r} never does: "
                "write its records to files or a topic, and read them from there"
            )
        self._directory = f"{directory}/cache-{uuid.uuid4().hex}"
        sink = FileSink(self._directory, BatchEncoding())
        self._run_beside(self._sink("Cache Writer", SinkOperator(sink)))
        self._job = None

    def _filled_by(self, job: JobHandle) -> None:
        """Note that this job, which writes the files, was started."""
        self._job = self._job or job
