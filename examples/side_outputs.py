"""Lines that cannot be read go to a side output instead of failing the job."""

import json
from collections.abc import Iterator
from typing import Any

from tidegate import OutputTag, ProcessFunction, StreamExecutionEnvironment, Types

LINES = [
    '{"sensor": "north", "celsius": 21.5}',
    "{sensor: north}",
    '{"sensor": "south", "celsius": 19.0}',
    '{"sensor": "south"}',
]
READING = Types.TUPLE([Types.STRING(), Types.DOUBLE()])
UNREADABLE = OutputTag("unreadable", Types.STRING())


class Parse(ProcessFunction):
    """Readings to the stream, all else to the tag."""

    def process_element(self, value: str, ctx: ProcessFunction.Context) -> Iterator[Any]:
        try:
            reading = json.loads(value)
            yield reading["sensor"], reading["celsius"]
        except (ValueError, KeyError) as problem:
            yield UNREADABLE, f"{value}: {type(problem).__name__}"


def main() -> None:
    with StreamExecutionEnvironment.get_execution_environment() as env:
        env.set_parallelism(1)
        readings = env.from_collection(LINES, Types.STRING()).process(Parse(), READING)
        readings.print("reading")
        readings.get_side_output(UNREADABLE).print("unreadable")
        env.execute("readings")


if __name__ == "__main__":
    main()
