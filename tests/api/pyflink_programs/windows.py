import sys

from pyflink.common import Time, Types, WatermarkStrategy
from pyflink.common.watermark_strategy import TimestampAssigner
from pyflink.datastream import ProcessWindowFunction, StreamExecutionEnvironment
from pyflink.datastream.window import (
    EventTimeSessionWindows,
    SlidingEventTimeWindows,
    TimeWindow,
    TumblingEventTimeWindows,
)

ASSIGNERS = {
    "tumbling": TumblingEventTimeWindows.of(Time.milliseconds(5)),
    "sliding": SlidingEventTimeWindows.of(Time.milliseconds(5), Time.milliseconds(2)),
    "session": EventTimeSessionWindows.with_gap(Time.milliseconds(5)),
}


class SecondField(TimestampAssigner):
    def extract_timestamp(self, value, record_timestamp):
        return int(value[1])


class Count(ProcessWindowFunction[tuple, tuple, str, TimeWindow]):
    def process(self, key, context, elements):
        window = context.window()
        return [(key, window.start, window.end, len(list(elements)))]


if __name__ == "__main__":
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    hits = [("hi", n) for n in (1, 2, 3, 4, 8, 9, 15)]
    stream = env.from_collection(hits, type_info=Types.TUPLE([Types.STRING(), Types.INT()]))
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(SecondField())
    if sys.argv[1] == "count":
        counted = stream.key_by(lambda hit: hit[0]).count_window(3)
        counted.reduce(lambda one, other: (one[0], one[1] + other[1])).print()
    else:
        stream.assign_timestamps_and_watermarks(strategy).key_by(
            lambda hit: hit[0], key_type=Types.STRING()
        ).window(ASSIGNERS[sys.argv[1]]).process(
            Count(), Types.TUPLE([Types.STRING(), Types.INT(), Types.INT(), Types.INT()])
        ).print()
    env.execute("windows")
