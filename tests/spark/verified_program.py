"""Counts numbers by key into a sink, for `tidegate verify`. Arguments: a directory, the sink."""

from __future__ import annotations

import sys
import time
import uuid
from pathlib import Path

from tidegate import StreamExecutionEnvironment, Types
from tidegate.datastream.connectors.file_system import CsvEncoding, FileSink
from tidegate.datastream.functions import TwoPhaseCommitSinkFunction

NUMBERS = 16_000
SECONDS_PER_NUMBER = 0.001
PAIR = Types.TUPLE([Types.LONG(), Types.LONG()])


class HonestSink(TwoPhaseCommitSinkFunction):
    """Lines in a hidden file that is renamed by the commit."""

    def __init__(self, directory: str) -> None:
        self.directory = Path(directory)

    def begin_transaction(self) -> str:
        return uuid.uuid4().hex

    def invoke(self, transaction: str, value: object, context: object) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        with (self.directory / f".{transaction}").open("a") as file:
            file.write(f"{value}\n")

    def pre_commit(self, transaction: str) -> None:
        pass

    def commit(self, transaction: str) -> None:
        hidden = self.directory / f".{transaction}"
        if hidden.exists():
            hidden.rename(self.directory / transaction)

    def abort(self, transaction: str) -> None:
        (self.directory / f".{transaction}").unlink(missing_ok=True)


class HastySink(HonestSink):
    """Commits before the checkpoint is complete."""

    def pre_commit(self, transaction: str) -> None:
        super().commit(transaction)


class ForgetfulSink(HonestSink):
    """Forgets what was prepared when it is restored."""

    def recover_and_commit(self, transaction: str) -> None:
        self.abort(transaction)


def slowly(number: int) -> tuple[int, int]:
    time.sleep(SECONDS_PER_NUMBER)
    return number % 50, 1


def main(directory: str, sink: str) -> None:
    with StreamExecutionEnvironment.get_execution_environment() as env:
        env.set_parallelism(2).enable_checkpointing("200 ms")
        numbers = env.from_sequence(1, NUMBERS).uid("numbers")
        counts = numbers.map(slowly, PAIR).key_by(lambda pair: pair[0]).sum(1).uid("counts")
        if sink == "files":
            counts.sink_to(FileSink(directory, CsvEncoding(header=False))).uid("sink")
        else:
            sinks = {"honest": HonestSink, "hasty": HastySink, "forgetful": ForgetfulSink}
            counts.add_sink(sinks[sink](directory)).uid("sink")
        env.execute("verified")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
