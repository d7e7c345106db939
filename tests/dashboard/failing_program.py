"""Counts numbers by key without an end, and fails whenever there is a file `fail`.

Argument: a directory for checkpoints, savepoints and that file.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tidegate import (
    DataGeneratorSource,
    KeyedProcessFunction,
    RestartStrategies,
    RuntimeContext,
    StreamExecutionEnvironment,
    Types,
    ValueStateDescriptor,
)

PAIR = Types.TUPLE([Types.LONG(), Types.LONG()])


class Count(KeyedProcessFunction):
    def __init__(self, directory: str) -> None:
        self.directory = directory

    def open(self, runtime_context: RuntimeContext) -> None:
        self.counted = runtime_context.get_state(ValueStateDescriptor("counted", Types.LONG()))

    def process_element(self, value, ctx):
        flag = Path(self.directory, "fail")
        if flag.exists():
            flag.unlink(missing_ok=True)
            raise ValueError("there is a file")
        self.counted.update((self.counted.value() or 0) + 1)
        if self.counted.value() % 100 == 0:
            yield (value[0], self.counted.value())


def main(directory: str) -> None:
    settings = {
        "execution.checkpointing.dir": f"{directory}/checkpoints",
        "execution.checkpointing.savepoint-dir": f"{directory}/savepoints",
    }
    with StreamExecutionEnvironment.get_execution_environment(settings) as env:
        env.enable_checkpointing("1 s")
        env.set_restart_strategy(RestartStrategies.fixed_delay_restart(5, "100 ms"))
        source = DataGeneratorSource(lambda number: (number % 10, 1), rate=200)
        numbers = env.from_source(source, source_name="Numbers", type_info=PAIR).uid("numbers")
        counts = numbers.key_by(lambda pair: pair[0]).process(Count(directory), PAIR)
        counts.name("Count").uid("count").print().uid("print")
        env.execute("counting")


if __name__ == "__main__":
    main(sys.argv[1])
