"""State of keyed functions, and their timers."""

import threading

from tests.api.results import collect, in_any_order
from tidegate.common import Time, Types
from tidegate.datastream import (
    AggregateFunction,
    KeyedProcessFunction,
    MapFunction,
    OutputTag,
    SourceFunction,
    TimeDomain,
)
from tidegate.datastream.state import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateTtlConfig,
    ValueStateDescriptor,
)

PAIR = Types.TUPLE([Types.STRING(), Types.LONG()])
RECORDS = [("a", 1), ("b", 10), ("a", 2), ("a", 3), ("b", 20)]


class Average(AggregateFunction):
    def create_accumulator(self):
        return 0, 0

    def add(self, value, accumulator):
        return accumulator[0] + value, accumulator[1] + 1

    def get_result(self, accumulator):
        return accumulator[0] / accumulator[1]

    def merge(self, acc_a, acc_b):
        return acc_a[0] + acc_b[0], acc_a[1] + acc_b[1]


class EveryKind(KeyedProcessFunction):
    """All kinds of state side by side."""

    def open(self, runtime_context):
        self.last = runtime_context.get_state(ValueStateDescriptor("last", Types.LONG()))
        self.all = runtime_context.get_list_state(ListStateDescriptor("all", Types.LONG()))
        self.seen = runtime_context.get_map_state(
            MapStateDescriptor("seen", Types.LONG(), Types.BOOLEAN())
        )
        self.total = runtime_context.get_reducing_state(
            ReducingStateDescriptor("total", lambda x, y: x + y, Types.LONG())
        )
        self.average = runtime_context.get_aggregating_state(
            AggregatingStateDescriptor(
                "average", Average(), Types.TUPLE([Types.LONG(), Types.LONG()])
            )
        )

    def process_element(self, value, ctx):
        key, number = value
        assert ctx.get_current_key() == key
        before = self.last.value()
        self.last.update(number)
        self.all.add(number)
        self.seen.put(number, True)
        self.total.add(number)
        self.average.add(number)
        yield (
            key,
            before,
            list(self.all.get()),
            sorted(self.seen.keys()),
            self.total.get(),
            self.average.get(),
        )


def test_every_kind_of_state_belongs_to_the_key(env):
    stream = env.from_collection(RECORDS, PAIR).key_by(lambda pair: pair[0]).process(EveryKind())
    found = collect(stream)
    assert [record for record in found if record[0] == "a"] == [
        ("a", None, [1], [1], 1, 1.0),
        ("a", 1, [1, 2], [1, 2], 3, 1.5),
        ("a", 2, [1, 2, 3], [1, 2, 3], 6, 2.0),
    ]
    assert [record for record in found if record[0] == "b"][-1] == (
        "b",
        10,
        [10, 20],
        [10, 20],
        30,
        15.0,
    )


def test_state_can_be_cleared_and_changed_in_place(env):
    class AverageOfTwo(MapFunction):
        def open(self, runtime_context):
            self.pair = runtime_context.get_state(ValueStateDescriptor("pair"))

        def map(self, value):
            current = self.pair.value() or []
            current.append(value[1])
            self.pair.update(current)
            if len(current) == 2:
                self.pair.clear()
                return value[0], sum(current) / 2
            return value[0], None

    stream = env.from_collection(RECORDS).key_by(lambda pair: pair[0]).map(AverageOfTwo())
    found = collect(stream)
    assert [n for key, n in found if key == "a"] == [None, 1.5, None]
    assert [n for key, n in found if key == "b"] == [None, 15.0]


def test_state_with_a_time_to_live_is_declared_as_in_pyflink(env):
    class Sum(KeyedProcessFunction):
        def open(self, runtime_context):
            descriptor = ValueStateDescriptor("state", Types.LONG())
            descriptor.enable_time_to_live(
                StateTtlConfig.new_builder(Time.hours(1))
                .set_update_type(StateTtlConfig.UpdateType.OnReadAndWrite)
                .disable_cleanup_in_background()
                .build()
            )
            self.state = runtime_context.get_state(descriptor)

        def process_element(self, value, ctx):
            self.state.update((self.state.value() or 0) + value[1])
            yield value[0], self.state.value()

    stream = env.from_collection(RECORDS, PAIR).key_by(lambda pair: pair[0]).process(Sum(), PAIR)
    assert in_any_order(stream) == [("a", 1), ("a", 3), ("a", 6), ("b", 10), ("b", 30)]


class SlowRecords(SourceFunction):
    """All records at once, and then nothing until the timers have long fired."""

    def open(self, runtime_context):
        self.canceled = threading.Event()

    def run(self, ctx):
        for record in RECORDS:
            ctx.collect(record)
        self.canceled.wait(1.0)

    def cancel(self):
        self.canceled.set()


def test_processing_time_timers_fire_once_for_their_key(env):
    late = OutputTag("late", Types.STRING())

    class Remind(KeyedProcessFunction):
        def open(self, runtime_context):
            self.total = runtime_context.get_state(ValueStateDescriptor("total", Types.LONG()))
            self.at = runtime_context.get_state(ValueStateDescriptor("at", Types.LONG()))

        def process_element(self, value, ctx):
            timers = ctx.timer_service()
            self.total.update((self.total.value() or 0) + value[1])
            if self.at.value() is None:
                self.at.update(timers.current_processing_time() + 30)
                timers.register_processing_time_timer(self.at.value())
                dropped = timers.current_processing_time() + 20
                timers.register_processing_time_timer(dropped)
                timers.delete_processing_time_timer(dropped)

        def on_timer(self, timestamp, ctx):
            assert ctx.time_domain() is TimeDomain.PROCESSING_TIME
            assert timestamp == self.at.value()
            yield ctx.get_current_key(), self.total.value()
            yield late, ctx.get_current_key()

    keyed = env.add_source(SlowRecords(), type_info=PAIR).key_by(lambda pair: pair[0])
    stream = keyed.process(Remind(), PAIR)
    assert in_any_order(stream.get_side_output(late)) == ["a", "b"]
    assert in_any_order(stream) == [("a", 6), ("b", 30)]


def test_a_value_state_has_the_default_value_of_its_descriptor(env):
    class Collect(KeyedProcessFunction):
        def open(self, runtime_context):
            self.seen = runtime_context.get_state(ValueStateDescriptor("seen", default_value=[]))

        def process_element(self, value, ctx):
            seen = self.seen.value()
            seen.append(value[1])
            self.seen.update(seen)
            yield value[0], tuple(seen)

    pairs = [("a", 1), ("b", 2), ("a", 3)]
    results = env.from_collection(pairs).key_by(lambda pair: pair[0]).process(Collect())
    assert in_any_order(results) == [("a", (1,)), ("a", (1, 3)), ("b", (2,))]
