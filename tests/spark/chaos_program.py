"""Counts slowly, from the latest checkpoint on, until told to come to an end; says what happens.

Arguments: a directory, the state backend, the Spark master. In the directory: checkpoints, the
results by subtask and attempt, the processes of every slot, and once it should end, a file `end`.
"""

from __future__ import annotations

import logging
import os
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import psutil
from pyspark.sql import SparkSession

from tidegate import Configuration, StreamExecutionEnvironment
from tidegate.connectors.sink import Sink, SinkWriter, WriterContext
from tidegate.connectors.source import (
    Boundedness,
    InputStatus,
    Poll,
    ReaderContext,
    Source,
    SourceReader,
    SplitEnumerator,
)
from tidegate.connectors.splits import KnownSplits
from tidegate.exchange.pipelined.requirements import session_settings
from tidegate.stream.batch import Batch

KEYS = 100
PARALLELISM = 2
LIMIT = 100_000
"""It counts no further, and waits here for the file `end`."""
SLICE = 50


@dataclass(frozen=True)
class Counter:
    """Counts from `position` on."""

    number: int
    position: int = 0


class CounterSource(Source):
    boundedness = Boundedness.CONTINUOUS_UNBOUNDED

    def __init__(self, directory: Path) -> None:
        self._end = directory / "end"

    def create_enumerator(self) -> SplitEnumerator:
        return KnownSplits(lambda parallelism: [Counter(i) for i in range(PARALLELISM)])

    def create_reader(self, context: ReaderContext) -> SourceReader:
        return CounterReader(self._end)


class CounterReader(SourceReader):
    def __init__(self, end: Path) -> None:
        self._end = end
        self._counters: list[Counter] = []

    def add_splits(self, splits: Any) -> None:
        self._counters += splits

    def poll(self, max_records: int) -> Poll:
        is_ending = self._end.exists()
        if is_ending and all(each.position == LIMIT for each in self._counters):
            return Poll(None, InputStatus.END_OF_INPUT)
        records: list[tuple[int, int]] = []
        for place, each in enumerate(self._counters):
            end = each.position + (max_records if is_ending else min(SLICE, max_records))
            end = min(end, LIMIT)
            records += [(value % KEYS, value) for value in range(each.position, end)]
            self._counters[place] = replace(each, position=end)
        return Poll(Batch.of_records(records), InputStatus.NOTHING_AVAILABLE)

    def snapshot(self) -> list[Counter]:
        return list(self._counters)


class Results(Sink):
    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def create_writer(self, context: WriterContext) -> SinkWriter:
        return ResultsWriter(self._directory, context.subtask)


class ResultsWriter(SinkWriter):
    """Keeps the highest total of every key: what state held at most."""

    def __init__(self, directory: Path, subtask: int) -> None:
        self._directory = directory
        self._subtask = subtask
        self._path = directory / f"results-{subtask}-{os.getpid()}-{os.urandom(4).hex()}"
        self._highest: dict[int, int] = {}

    def open(self) -> None:
        """Tell the process of the slot and that of its executor."""
        me = psutil.Process()
        executor = next(parent.pid for parent in me.parents() if "java" in parent.name())
        write(self._directory / f"slot-{self._subtask}", f"{me.pid} {executor}")

    def write(self, batch: Batch) -> None:
        for key, total in batch.records:
            self._highest[key] = max(total, self._highest.get(key, 0))

    def flush(self, end_of_input: bool = False) -> None:
        write(self._path, "\n".join(f"{key} {total}" for key, total in self._highest.items()))


def write(path: Path, text: str) -> None:
    """At once: whoever reads it is never in between."""
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    fresh.write_text(text)
    fresh.rename(path)


class Events(logging.Handler):
    """Tells whoever started the program of checkpoints and recoveries."""

    def emit(self, record: logging.LogRecord) -> None:
        print(record.getMessage().splitlines()[0], file=sys.stderr, flush=True)


def main(directory: Path, backend: str, master: str) -> None:
    logging.getLogger("tidegate").addHandler(Events())
    logging.getLogger("tidegate").setLevel(logging.INFO)
    spark = (
        SparkSession.builder.master(master)
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.python.unix.domain.socket.enabled", "true")
        .config("spark.executor.cores", "1")
        .config("spark.executor.memory", "512m")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config(map=session_settings())
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("OFF")
    settings = {
        "execution.checkpointing.interval": "100 ms",
        "execution.checkpointing.dir": str(directory / "checkpoints"),
        "execution.state-recovery.path": "latest",
        "state.backend.type": backend,
        "execution.checkpointing.incremental": "true",
        "restart-strategy.type": "fixed-delay",
        "restart-strategy.fixed-delay.attempts": 1000,
        "restart-strategy.fixed-delay.delay": "1 ms",
        "tidegate.slot.start-timeout": "10 min",
    }
    env = StreamExecutionEnvironment.get_execution_environment(
        Configuration.from_dict(settings), spark=spark
    )
    env.set_parallelism(PARALLELISM)
    numbers = env.from_source(CounterSource(directory), None, "numbers").uid("numbers")
    totals = numbers.key_by(lambda pair: pair[0]).sum(1).uid("totals")
    totals.sink_to(Results(directory))
    env.execute("chaos")
    print("finished", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3])
