from collections.abc import Iterable

from pyflink.common import Duration, Types
from pyflink.common.time import Time
from pyflink.common.watermark_strategy import TimestampAssigner, WatermarkStrategy
from pyflink.datastream import OutputTag, StreamExecutionEnvironment
from pyflink.datastream.functions import AggregateFunction, ProcessWindowFunction
from pyflink.datastream.window import (
    CountWindow,
    EventTimeSessionWindows,
    TimeWindow,
    Trigger,
    TriggerResult,
    TumblingEventTimeWindows,
)


class ReadingTime(TimestampAssigner):
    def extract_timestamp(self, value, record_timestamp) -> int:
        return int(value[2])


class Average(AggregateFunction):
    def create_accumulator(self) -> tuple[float, int]:
        return 0.0, 0

    def add(self, value: tuple[str, float, int], accumulator: tuple[float, int]):
        return accumulator[0] + value[1], accumulator[1] + 1

    def get_result(self, accumulator: tuple[float, int]) -> float:
        return accumulator[0] / accumulator[1]

    def merge(self, a, b):
        return a[0] + b[0], a[1] + b[1]


class WithWindow(ProcessWindowFunction[float, tuple[str, int, int, float], str, TimeWindow]):
    def process(
        self,
        key: str,
        context: ProcessWindowFunction.Context[TimeWindow],
        averages: Iterable[float],
    ) -> Iterable[tuple[str, int, int, float]]:
        return [(key, context.window().start, context.window().end, next(iter(averages)))]

    def clear(self, context: ProcessWindowFunction.Context) -> None:
        pass


class CountReadings(ProcessWindowFunction[tuple, tuple, str, TimeWindow]):
    def process(self, key, context, elements):
        yield key, context.window().start, len(list(elements))


class EveryReading(Trigger[tuple, CountWindow]):
    @staticmethod
    def of() -> "EveryReading":
        return EveryReading()

    def on_element(self, element, timestamp, window, ctx: "Trigger.TriggerContext"):
        return TriggerResult.FIRE_AND_PURGE

    def on_processing_time(self, time, window, ctx):
        return TriggerResult.CONTINUE

    def on_event_time(self, time, window, ctx):
        return TriggerResult.CONTINUE

    def on_merge(self, window, ctx):
        pass

    def clear(self, window, ctx):
        pass


def main():
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    readings = env.from_collection(
        [("t1", 20.0, 1000), ("t1", 22.0, 4000), ("t2", 5.0, 2000), ("t1", 30.0, 11000)],
        type_info=Types.TUPLE([Types.STRING(), Types.DOUBLE(), Types.LONG()]),
    )
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_seconds(2))
    timed = readings.assign_timestamps_and_watermarks(
        strategy.with_timestamp_assigner(ReadingTime())
    )
    keyed = timed.key_by(lambda reading: reading[0], key_type=Types.STRING())

    keyed.window(TumblingEventTimeWindows.of(Time.seconds(10))).aggregate(
        Average(),
        window_function=WithWindow(),
        accumulator_type=Types.TUPLE([Types.DOUBLE(), Types.LONG()]),
        output_type=Types.TUPLE([Types.STRING(), Types.LONG(), Types.LONG(), Types.DOUBLE()]),
    ).print("average")
    late = OutputTag("late", Types.TUPLE([Types.STRING(), Types.DOUBLE(), Types.LONG()]))
    sessions = (
        keyed.window(EventTimeSessionWindows.with_gap(Time.seconds(5)))
        .allowed_lateness(1000)
        .side_output_late_data(late)
        .process(CountReadings(), Types.TUPLE([Types.STRING(), Types.LONG(), Types.INT()]))
    )
    sessions.print("session")
    sessions.get_side_output(late).print("late")
    keyed.count_window(2).trigger(EveryReading.of()).reduce(lambda a, b: b).print("each")
    env.execute("sensor windows")


if __name__ == "__main__":
    main()
