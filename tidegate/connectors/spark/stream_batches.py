"""Passes the micro-batches of a streaming query to the readers of a job."""

from __future__ import annotations

import logging
import pickle
import re
import threading
import zlib
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from pyspark import InheritableThread
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from tidegate.connectors.source import SplitEnumerator
from tidegate.connectors.spark.staging import StagedFile, StagedRows, Staging, for_spark
from tidegate.connectors.splits import deal
from tidegate.core.errors import ExternalError
from tidegate.storage.locations import below
from tidegate.storage.private_directory import PrivateDirectory

_log = logging.getLogger(__name__)
_MOST_UNREAD = 2
"""How many batches may be staged before the first of them is read."""
_SHORTEST_LOOK, _LONGEST_LOOK = 0.02, 0.5
"""How often, in seconds, to check whether batches have been read."""
_FAREWELL_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class QueryState:
    """The progress of a query, stored in checkpoints."""

    job_id: str
    """The job that staged the batches."""
    last: dict[str, int] = field(default_factory=dict)
    """The last batch of every run whose files may still be needed."""
    batch: int = -1
    log: bytes | None = None
    """A copy of Structured Streaming's own log at this batch."""
    waiting: tuple[StagedRows, ...] = ()
    """Rows that no reader has received yet; not in a checkpoint, as the query repeats them."""
    has_ended: bool = False


class StreamBatches(SplitEnumerator):
    """Runs a streaming query on its own threads, and stages its batches.

    A query continues after the last batch of the restored checkpoint: it repeats that batch, which
    is skipped here, because its rows were already delivered.
    """

    def __init__(
        self, frame: DataFrame, trigger: dict[str, Any] | None, temporary: Callable[[], str]
    ) -> None:
        self._frame = frame
        self._trigger = trigger
        self._temporary = temporary
        self._changed = threading.Condition()
        """Guards the fields below that both threads use."""
        self._state = QueryState("")
        self._dealt = self._state
        """The state up to which readers have received all rows."""
        self._failure: ExternalError | None = None
        self._is_closed = False
        self._unread: dict[int, list[str]] = {}
        self._next_reader = 0
        self._thread: threading.Thread | None = None

    def open(self) -> None:
        context = self.context
        root = context.directory
        self._staging = Staging(
            self._temporary() if root is None else below(root, context.operator_id)
        )
        self._state = self._dealt = QueryState(context.job_id)

    def restore(self, state: QueryState | None) -> None:
        if state is None:
            return
        # Batches staged by another job are read, but not deleted here.
        job_id = self.context.job_id
        last = state.last if state.job_id == job_id else {}
        self._state = self._dealt = QueryState(
            job_id, dict(last), state.batch, state.log, has_ended=state.has_ended
        )

    def next_splits(self, parallelism: int) -> dict[int, list[Any]]:
        with self._changed:
            if self._failure is not None:
                raise self._failure
            if self._thread is None and not self._state.has_ended:
                self._thread = InheritableThread(
                    target=self._run, name="tidegate-streaming-query", daemon=True
                )
                self._thread.start()
            waiting = self._state.waiting
            self._state = self._dealt = replace(self._state, waiting=())
        hands = deal(waiting, parallelism)
        first = self._next_reader
        self._next_reader = (first + len(waiting)) % parallelism
        return {(reader + first) % parallelism: hand for reader, hand in hands.items()}

    def is_exhausted(self) -> bool:
        with self._changed:
            return self._dealt.has_ended

    def add_back(self, splits: Sequence[Any]) -> None:
        with self._changed:
            self._state = replace(self._state, waiting=(*splits, *self._state.waiting))

    def snapshot(self) -> QueryState:
        with self._changed:
            return self._dealt

    def close(self) -> None:
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        if self._thread is None:
            return
        self._thread.join(_FAREWELL_SECONDS)
        if not self.context.is_checkpointed:
            with suppress(OSError):
                self._staging.remove_run()

    # --- on the thread of the query -------------------------------------------------------------

    def _run(self) -> None:
        own = PrivateDirectory("stream")
        directory = own.path
        try:
            self._clean_up()
            if self._state.log is not None:
                write_log(self._state.log, directory)
            stream = self._frame.writeStream.option("checkpointLocation", directory.as_uri())
            if self._trigger is not None:
                stream = stream.trigger(**self._trigger)
            self._follow(stream.foreachBatch(partial(self._take, directory)).start())
            with self._changed:
                self._state = replace(self._state, has_ended=not self._is_closed)
        except Exception as error:
            with self._changed:
                self._failure = ExternalError(
                    f"the streaming query failed: {_reason(error)}; it is restarted from the "
                    "last checkpoint if the restart strategy allows it"
                )
        finally:
            own.remove()

    def _follow(self, query: Any) -> None:
        """Wait until the query has ended or should be stopped."""
        while query.isActive:
            with self._changed:
                if not self._is_closed:
                    self._changed.wait(_LONGEST_LOOK)
                if not self._is_closed:
                    continue
            with suppress(PySparkException):
                query.stop()
            return
        query.awaitTermination()

    def _take(self, directory: Path, frame: DataFrame, number: int) -> None:
        """Stage a batch. Called by Spark, one batch at a time.

        Batches after the end are skipped: what Spark records about them is discarded.
        """
        if number <= self._state.batch:
            return  # the batch that the query repeats in order to continue after it
        self._wait_for_readers()
        if self._is_closed:
            return
        staging = self._staging
        frame.write.mode("overwrite").parquet(for_spark(staging.batch(number)))
        files = staging.files(number)
        log = copy_of_log(directory, number)
        retained = self.context.retained_checkpoints
        rows = [
            StagedRows(StagedFile(split.path, self.context.job_id, retained), split)
            for split in files
        ]
        if not rows:
            staging.remove(number)
        with self._changed:
            if self._is_closed:
                return
            state = self._state
            self._state = QueryState(
                job_id=state.job_id,
                last={**state.last, staging.run: number},
                batch=number,
                log=log,
                waiting=(*state.waiting, *rows),
            )
            if rows:
                self._unread[number] = [split.path for split in files]

    def _wait_for_readers(self) -> None:
        pause = _SHORTEST_LOOK
        while self._count_unread() >= _MOST_UNREAD:
            with self._changed:
                if self._is_closed:
                    return
                self._changed.wait(pause)
            pause = min(2 * pause, _LONGEST_LOOK)
        self._clean_up()

    def _count_unread(self) -> int:
        for number, paths in list(self._unread.items()):
            self._unread[number] = self._staging.unread(number, paths)
            if not self._unread[number]:
                del self._unread[number]
                if not self.context.is_checkpointed:
                    self._staging.remove(number)
        return len(self._unread)

    def _clean_up(self) -> None:
        """Delete what lost attempts have staged, and emptied batches."""
        try:
            left = self._staging.remove_what_nobody_needs(self._state.last)
        except OSError as error:
            _log.warning("%s cannot be cleaned up: %s", self._staging.root, error)
            return
        with self._changed:
            run = self._staging.run
            own = {run: self._state.last[run]} if run in self._state.last else {}
            self._state = replace(self._state, last={**left, **own})


def _reason(error: Exception) -> str:
    return str(error).strip().partition("\n")[0] or type(error).__name__


_SOURCES = "sources"
_COMPACTED = re.compile(r"(\d+)\.compact")


def copy_of_log(directory: Path, batch: int) -> bytes:
    """The files of a query's checkpoint directory that this batch needs."""
    wanted = [
        directory / "metadata",
        *(directory / "offsets" / str(number) for number in (batch - 1, batch)),
        directory / "commits" / str(batch - 1),
    ]
    for source in sorted((directory / _SOURCES).glob("*")):
        wanted += _of_source(source)
    files = {
        str(path.relative_to(directory)): path.read_bytes() for path in wanted if path.is_file()
    }
    return zlib.compress(pickle.dumps(files, protocol=5))


def write_log(copy: bytes, directory: Path) -> None:
    """Create a checkpoint directory from a copy."""
    files: dict[str, bytes] = pickle.loads(zlib.decompress(copy))
    for name, data in files.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


def _of_source(directory: Path) -> list[Path]:
    """The log of one source: its last summary and everything after it, or all of it."""
    files = [
        path for path in directory.rglob("*") if path.is_file() and not path.name.startswith(".")
    ]
    summaries = [int(found[1]) for path in files if (found := _COMPACTED.fullmatch(path.name))]
    last = max(summaries, default=-1)
    return [path for path in files if not path.stem.isdigit() or int(path.stem) >= last]
