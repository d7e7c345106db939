from pyflink.common import Time, Types, WatermarkStrategy
from pyflink.common.watermark_strategy import TimestampAssigner
from pyflink.datastream import StreamExecutionEnvironment
from pyflink.datastream.functions import KeyedProcessFunction, RuntimeContext
from pyflink.datastream.state import StateTtlConfig, ValueStateDescriptor


class FirstField(TimestampAssigner):
    def extract_timestamp(self, value, record_timestamp):
        return int(value[0])


class SumOnceQuiet(KeyedProcessFunction):
    """Emits the sum of a key two seconds of event time after its last record."""

    def open(self, runtime_context: RuntimeContext):
        descriptor = ValueStateDescriptor("sum", Types.LONG())
        ttl = StateTtlConfig.new_builder(Time.hours(1)).build()
        descriptor.enable_time_to_live(ttl)
        self.sum = runtime_context.get_state(descriptor)
        self.due = runtime_context.get_state(ValueStateDescriptor("due", Types.LONG()))

    def process_element(self, value, ctx: "KeyedProcessFunction.Context"):
        self.sum.update((self.sum.value() or 0) + value[2])
        if self.due.value() is not None:
            ctx.timer_service().delete_event_time_timer(self.due.value())
        self.due.update(ctx.timestamp() + 2000)
        ctx.timer_service().register_event_time_timer(self.due.value())

    def on_timer(self, timestamp: int, ctx: "KeyedProcessFunction.OnTimerContext"):
        yield ctx.get_current_key(), self.sum.value(), timestamp
        self.sum.clear()
        self.due.clear()


if __name__ == "__main__":
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    row = Types.TUPLE([Types.LONG(), Types.STRING(), Types.LONG()])
    records = [(1000, "a", 1), (1500, "b", 10), (2500, "a", 2), (9000, "a", 4), (9500, "b", 20)]
    stream = env.from_collection(records, type_info=row)
    stream.assign_timestamps_and_watermarks(
        WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(FirstField())
    ).key_by(lambda value: value[1]).process(
        SumOnceQuiet(), Types.TUPLE([Types.STRING(), Types.LONG(), Types.LONG()])
    ).print()
    env.execute("event time timer")
