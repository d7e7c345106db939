"""`StreamExecutionEnvironment`: creates, configures and runs a program."""

from __future__ import annotations

import atexit
import logging
import sys
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NoReturn, Self

from pyarrow import fs

from tidegate.common.configuration import Configuration
from tidegate.common.job_client import JobClient
from tidegate.common.job_execution_result import JobExecutionResult
from tidegate.common.watermark_strategy import WatermarkStrategy
from tidegate.connectors.collection import CollectionSource
from tidegate.connectors.driver_side import CollectSink
from tidegate.connectors.files.formats import TextLineFormat
from tidegate.connectors.files.source import FileSource
from tidegate.connectors.sequence import NumberSequenceSource
from tidegate.connectors.sink import Sink
from tidegate.connectors.source import Source
from tidegate.core.config import Settings
from tidegate.core.durations import DurationLike, as_timedelta
from tidegate.core.errors import ConfigError, GraphError
from tidegate.core.modes import LiveLine, OnTerminate
from tidegate.core.redaction import redacted
from tidegate.core.setting_groups import SparkSettings
from tidegate.datastream.data_stream import DataStream
from tidegate.datastream.execution.closeable_iterator import CloseableIterator
from tidegate.datastream.execution.declared_types import TypeLike, declared_type
from tidegate.datastream.execution.environment_settings import EnvironmentSettings
from tidegate.datastream.execution.execution_plan import execution_plan
from tidegate.datastream.execution.executor import JobExecutor, SparkExecutor
from tidegate.datastream.execution.hosting import building
from tidegate.datastream.execution.program import Program, unbounded_sources
from tidegate.datastream.execution.spark_session import active_context, refuse_spark_connect
from tidegate.graph.guarantees import end_to_end
from tidegate.graph.job_graph import JobGraph
from tidegate.graph.logical import Transformation, Upstream
from tidegate.operators.endpoints.operators import SinkOperator
from tidegate.operators.endpoints.source_function import SourceFunctionSource
from tidegate.operators.event_time.timestamps import timestamp_field
from tidegate.operators.functions import SourceFunction
from tidegate.storage.locations import resolve
from tidegate.storage.private_directory import PrivateDirectory
from tidegate.types.arrow import arrow_format
from tidegate.types.typeinfo import TypeInformation

if TYPE_CHECKING:
    import pyspark.sql
    from pyspark.sql import SparkSession

    from tidegate.datastream.cached_data_stream import CachedDataStream
    from tidegate.driver.job_handle import JobHandle

_log = logging.getLogger(__name__)

_NOT_THERE = {
    "add_classpaths": "no Java code runs in slots",
    "add_python_archive": "pass the archive to Spark: configuration key spark.archives",
    "register_cached_file": "pass the file to Spark: configuration key spark.files",
    "set_python_executable": "slots run the driver's Python, or PYSPARK_PYTHON",
    "set_python_requirements": "install the packages where Spark's workers run, or pass an archive "
    "of an environment: configuration key spark.archives",
}


class ExchangeDirectory:
    """A directory of one environment, created on first use.

    It exists until the process ends, unless it is removed earlier, because DataFrames that were
    read from it may be computed at any time.
    """

    def __init__(self) -> None:
        self._path: str | None = None
        self._own: PrivateDirectory | None = None

    def path(self, settings: SparkSettings) -> str:
        if self._path is None:
            parent = settings.exchange_directory
            if parent is None:
                self._own = PrivateDirectory("exchange")
                parent = str(self._own.path)
            self._path = f"{parent.rstrip('/')}/tidegate-exchange-{uuid.uuid4().hex[:12]}"
            atexit.register(self.remove)
        return self._path

    def remove(self) -> None:
        if self._path is None:
            return
        path, self._path = self._path, None
        atexit.unregister(self.remove)
        file_system, inner = resolve(path)
        if file_system.get_file_info(inner).type is fs.FileType.Directory:
            file_system.delete_dir(inner)
        if self._own is not None:
            self._own.remove()
            self._own = None


class StreamExecutionEnvironment(EnvironmentSettings):
    """Builds a job from streams, and runs it on Spark.

    with StreamExecutionEnvironment.get_execution_environment() as env:
        env.from_collection(["a", "b", "a"]).key_by(lambda word: word).count().print()
        env.execute("count words")
    """

    def __init__(
        self,
        configuration: Configuration | Mapping[str, Any] | None = None,
        executor: JobExecutor | None = None,
    ) -> None:
        super().__init__(SparkExecutor() if executor is None else executor)
        self._program = Program()
        building(self, self._program)
        self._exchange = ExchangeDirectory()
        self._collectors = 0
        self._caches: list[CachedDataStream] = []
        if configuration is not None:
            self.configure(configuration)

    @staticmethod
    def get_execution_environment(
        configuration: Configuration | Mapping[str, Any] | None = None,
        spark: SparkSession | None = None,
    ) -> StreamExecutionEnvironment:
        """An environment on the given Spark session, or on one that is created when needed."""
        return StreamExecutionEnvironment(configuration, SparkExecutor(spark))

    # --- sources --------------------------------------------------------------------------------

    def from_collection(
        self, collection: Iterable[Any], type_info: TypeLike | None = None
    ) -> DataStream:
        """The records of a collection, read by one subtask in order."""
        declared = declared_type(type_info)
        source = CollectionSource(collection, declared, arrow_format(declared))
        stream = self._source(source, "Collection Source", declared)
        return stream.force_non_parallel()

    def from_sequence(self, start: int, end: int) -> DataStream:
        """The integers from `start` to `end`, both included, with one range per subtask."""
        return self.from_source(NumberSequenceSource(start, end), source_name="Sequence Source")

    generate_sequence = from_sequence

    def from_source(
        self,
        source: Source,
        watermark_strategy: WatermarkStrategy | None = None,
        source_name: str | None = None,
        type_info: TypeLike | None = None,
    ) -> DataStream:
        """The records of a source, with event time if a strategy assigns it.

        Each split of the source (a Kafka partition, a file) has its own watermark generator.
        """
        if not isinstance(source, Source):
            raise TypeError(
                f"from_source() needs a Source, got {source!r}: use from_collection() for "
                "collections, add_source() for source functions"
            )
        declared = declared_type(type_info) or source.produced_type()
        if watermark_strategy is not None:
            timestamp_field(watermark_strategy, declared)  # raise here, not when the job runs
        name = source_name or type(source).__name__
        return self._source(source, name, declared, watermark_strategy)

    def add_source(
        self,
        source_func: SourceFunction | Source,
        source_name: str = "Custom Source",
        type_info: TypeLike | None = None,
    ) -> DataStream:
        """The records of a SourceFunction, run by one subtask, or of a Source."""
        if isinstance(source_func, Source):
            return self.from_source(source_func, source_name=source_name, type_info=type_info)
        return self._source(
            SourceFunctionSource(source_func), source_name, declared_type(type_info)
        )

    def create_input(self, input_format: Source, type_info: TypeLike | None = None) -> DataStream:
        """The records of an input format, such as `AvroInputFormat`."""
        return self.from_source(input_format, source_name="Custom Source", type_info=type_info)

    def read_text_file(self, file_path: str, charset_name: str = "UTF-8") -> DataStream:
        """The lines of a text file, or of all files below a directory."""
        source = FileSource(str(file_path), TextLineFormat(charset_name))
        return self.from_source(source, source_name="Text File Source")

    def from_dataframe(
        self, dataframe: pyspark.sql.DataFrame, source_name: str = "DataFrame Source"
    ) -> DataStream:
        """The rows of a Spark DataFrame, computed now, as a bounded stream."""
        from tidegate.connectors.spark.dataframes import from_dataframe

        refuse_spark_connect(dataframe)
        directory = self._exchange.path(self._configuration.settings().spark)
        return self.from_source(from_dataframe(dataframe, directory), source_name=source_name)

    def from_streaming_dataframe(
        self,
        dataframe: pyspark.sql.DataFrame,
        *,
        every: DurationLike | None = None,
        bounded: bool = False,
        source_name: str = "Spark Stream Source",
    ) -> DataStream:
        """The rows of a streaming Spark DataFrame: of any `spark.readStream`.

        Args:
            dataframe: rows as Spark reads and transforms them; it must keep no state in Spark.
            every: how often Spark looks for new rows; by default, as soon as the last ones are
                read.
            bounded: end with the rows that exist when the job starts.
            source_name: the name of the source.
        """
        from tidegate.connectors.spark.stream import SparkStreamSource

        refuse_spark_connect(dataframe)
        directory = f"stream-{uuid.uuid4().hex}"
        source = SparkStreamSource(
            dataframe,
            lambda: f"{self._exchange.path(self._configuration.settings().spark)}/{directory}",
            every=None if every is None else as_timedelta(every),
            bounded=bounded,
        )
        return self.from_source(source, source_name=source_name)

    # --- running --------------------------------------------------------------------------------

    def execute(self, job_name: str | None = None) -> JobExecutionResult:
        """Run the program to its end; raises the failure of the job.

        Ctrl-C and SIGTERM cancel the job, or stop it if `tidegate.on-terminate` says so.
        """
        job = self.execute_async(job_name)
        try:
            return job.wait()
        except KeyboardInterrupt:
            job.terminate()
            raise

    def execute_async(self, job_name: str | None = None) -> JobClient:
        """Start the program and return at once."""
        return JobClient(self._submit(job_name))

    def get_execution_plan(self) -> str:
        """The program as JSON, in the form that Flink's plan visualizer reads."""
        return execution_plan(self._program.leaves(), self.get_parallelism())

    def close(self) -> None:
        """Stop the Spark session, if the environment has created one."""
        if self._executor.close():
            self._exchange.remove()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *failure: object) -> None:
        self.close()

    def _source(
        self,
        source: Source,
        name: str,
        type_info: TypeInformation | None,
        watermarks: WatermarkStrategy | None = None,
    ) -> DataStream:
        transformation = Transformation(
            name=name, source=source, output_type=type_info, watermarks=watermarks
        )
        if source.max_readers() == 1:
            transformation.parallelism = transformation.max_parallelism = 1
        return DataStream(self, (Upstream(transformation),), type_info)

    def _register(self, transformation: Transformation) -> None:
        self._program.add(transformation)

    def _submit(self, job_name: str | None) -> JobHandle:
        settings = self._configuration.settings()
        if job_name is not None:
            settings = replace(settings, pipeline=replace(settings.pipeline, name=job_name))
        storage = self.get_checkpoint_config().get_checkpoint_storage()
        if settings.checkpointing.is_enabled and storage is None:
            _log.warning(
                "checkpoints are kept in the memory of the driver and are lost with it; set "
                "execution.checkpointing.dir, or JobManagerCheckpointStorage() if this is intended"
            )
        if (
            settings.engine.on_terminate is OnTerminate.STOP
            and settings.checkpointing.savepoint_directory is None
        ):
            raise ConfigError(
                "tidegate.on-terminate",
                OnTerminate.STOP.value,
                "stopping takes a savepoint: set execution.checkpointing.savepoint-dir, too",
            )
        caches = [stream for stream in self._caches if self._program.reads(stream._upstreams[0])]
        for stream in caches:
            stream._prepare(self._exchange.path(settings.spark))
        program, self._program = self._program, Program()
        building(self, self._program)
        dead_letters = self._dead_letters
        graph, settings = program.translate(settings, self.get_parallelism(), dead_letters)
        _say_guarantees(graph, settings)
        if settings.checkpointing.is_enabled and (warning := uid_warning(graph)) is not None:
            _log.warning("%s", warning)

        def replan(parallelism: int) -> JobGraph:
            return program.translate(settings, parallelism, dead_letters)[0]

        job = self._executor.submit(graph, settings, replan)
        for stream in caches:
            stream._filled_by(job)
        return job

    def _collect(self, stream: DataStream, job_name: str | None) -> CloseableIterator:
        self._collectors += 1
        name = f"collect-{self._collectors}"
        sink = stream._sink("Collect", SinkOperator(CollectSink(name)))
        stream._run_beside(sink)
        job = self._submit(job_name)
        return CloseableIterator(JobClient(job), job.collected(name, arrow_format(stream._type)))

    def _to_dataframe(self, stream: DataStream) -> pyspark.sql.DataFrame:
        from tidegate.connectors.spark.dataframes import DataFrameSink

        unbounded = unbounded_sources([up.transformation for up in stream._upstreams])
        if unbounded:
            raise GraphError(
                f"to_dataframe() needs a stream that ends, but the source {unbounded[0]!r} never "
                "does: read it with a bounded source, or write to files with sink_to()"
            )
        settings = self._configuration.settings().spark
        sink = DataFrameSink(f"{self._exchange.path(settings)}/{uuid.uuid4().hex}", stream._type)
        stream._run_beside(stream.sink_to(sink).name("DataFrame"))
        self.execute()
        return sink.read(self._executor.session())

    def _table_sink(
        self, stream: DataStream, table: str, mode: str, partition_by: Sequence[str]
    ) -> Sink:
        from tidegate.connectors.spark.catalog import CatalogTable
        from tidegate.connectors.spark.table import TableMode, TableSink

        target: CatalogTable | str = table
        if "/" not in table:
            has_session = active_context() is not None
            target = CatalogTable(table, self._executor.session, is_within_reach=has_session)
        return TableSink(target, stream._type, mode=TableMode.of(mode), partition_by=partition_by)

    if not TYPE_CHECKING:  # a type checker would accept every name as a method

        def __getattr__(self, name: str) -> NoReturn:
            reason = _NOT_THERE.get(name)
            said = "" if reason is None else f": {reason}"
            raise AttributeError(
                f"{type(self).__name__!r} object has no attribute {name!r}{said}",
                name=name,
                obj=self,
            )


def _say_guarantees(graph: JobGraph, settings: Settings) -> None:
    """Print one line per sink, next to the live line; log it if that is disabled."""
    for each in end_to_end(graph, settings.checkpointing):
        guarantee = redacted(str(each))
        if settings.engine.live_line is LiveLine.OFF:
            _log.info("%s", guarantee)
        else:
            print(guarantee, file=sys.stderr)


def without_uid(graph: JobGraph) -> tuple[str, ...]:
    """The names of stateful operators without a uid, in the order of the program."""
    return tuple(
        chained.name
        for vertex in graph.vertices
        for chained in vertex.chain
        if chained.uid is None and chained.operator is not None and chained.operator.keeps_state()
    )


def uid_warning(graph: JobGraph) -> str | None:
    """A warning about them; None if there are none."""
    names = without_uid(graph)
    if not names:
        return None
    return (
        f"no uid is set for {', '.join(map(repr, names))}: savepoints and checkpoints fit only "
        "while the graph stays the same; give every operator with state a uid, such as "
        '.uid("orders")'
    )
