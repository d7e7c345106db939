"""Counts numbers by key without an end, for commands. Argument: where checkpoints go."""

from __future__ import annotations

import sys

from tidegate import DataGeneratorSource, StreamExecutionEnvironment, Types

PAIR = Types.TUPLE([Types.LONG(), Types.LONG()])


def main(directory: str) -> None:
    with StreamExecutionEnvironment.get_execution_environment() as env:
        env.set_parallelism(2).enable_checkpointing("500 ms")
        env.get_checkpoint_config().set_checkpoint_storage(directory)
        source = DataGeneratorSource(lambda number: (number % 10, 1), rate=200)
        numbers = env.from_source(source, source_name="Numbers", type_info=PAIR).uid("numbers")
        counts = numbers.key_by(lambda pair: pair[0]).sum(1).uid("counts")
        counts.filter(lambda pair: pair[1] % 100 == 0).uid("hundreds").print().uid("print")
        print("the program starts its job")
        env.execute("commanded")


if __name__ == "__main__":
    main(sys.argv[1])
