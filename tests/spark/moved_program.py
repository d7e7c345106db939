"""Counts by key into files. Arguments: how many records a second, where files go, checkpoints."""

from __future__ import annotations

import sys

from tidegate import DataGeneratorSource, StreamExecutionEnvironment, Types
from tidegate.datastream.connectors.file_system import CsvEncoding, FileSink

COUNT = 3000
KEYS = 7
PAIR = Types.TUPLE([Types.LONG(), Types.LONG()])


def main(rate: str, results: str, checkpoints: str) -> None:
    with StreamExecutionEnvironment.get_execution_environment() as env:
        env.enable_checkpointing("500 ms")
        env.get_checkpoint_config().set_checkpoint_storage(checkpoints)
        source = DataGeneratorSource(lambda n: (n % KEYS, 1), count=COUNT, rate=float(rate))
        pairs = env.from_source(source, type_info=PAIR).uid("pairs")
        counts = pairs.key_by(lambda pair: pair[0]).sum(1).uid("counts")
        counts.sink_to(FileSink(results, CsvEncoding(header=False))).uid("files")
        env.execute("moved")


if __name__ == "__main__":
    main(*sys.argv[1:])
