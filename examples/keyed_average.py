"""Keyed state: the average of every three values of a key."""

from collections.abc import Iterator

from tidegate import (
    FlatMapFunction,
    RuntimeContext,
    StreamExecutionEnvironment,
    Types,
    ValueStateDescriptor,
)

MEASURES = [(1, 3), (1, 5), (2, 10), (1, 7), (2, 20), (1, 4), (2, 60), (1, 2), (1, 6)]
PAIR = Types.TUPLE([Types.LONG(), Types.LONG()])


class AverageOfThree(FlatMapFunction):
    """Keeps [count, sum] of a key and changes it in place."""

    def open(self, runtime_context: RuntimeContext) -> None:
        descriptor = ValueStateDescriptor("average", Types.LIST(Types.LONG()))
        self.sum = runtime_context.get_state(descriptor)

    def flat_map(self, value: tuple[int, int]) -> Iterator[tuple[int, int]]:
        key, number = value
        current = self.sum.value() or [0, 0]
        current[0] += 1
        current[1] += number
        self.sum.update(current)
        if current[0] >= 3:
            yield key, current[1] // current[0]
            self.sum.clear()


def main() -> None:
    with StreamExecutionEnvironment.get_execution_environment() as env:
        env.set_parallelism(2)
        measures = env.from_collection(MEASURES, PAIR)
        measures.key_by(lambda pair: pair[0]).flat_map(AverageOfThree(), PAIR).print("average")
        env.execute("average of every three values")


if __name__ == "__main__":
    main()
