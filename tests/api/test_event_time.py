"""Event time: where timestamps and watermarks come from, and what they set off."""

import pytest

from tests.api.results import collect, in_any_order
from tidegate.common import (
    Duration,
    TimestampAssigner,
    Types,
    WatermarkGenerator,
    WatermarkStrategy,
)
from tidegate.core.errors import GraphError, MissingField, UserFunctionError
from tidegate.datastream import (
    KeyedBroadcastProcessFunction,
    KeyedCoProcessFunction,
    KeyedProcessFunction,
    ProcessFunction,
)
from tidegate.state.descriptors import MapStateDescriptor
from tidegate.stream.elements import FINAL_WATERMARK, NO_WATERMARK

PAIR = Types.ROW_NAMED(["key", "at"], [Types.STRING(), Types.LONG()])
ASCENDING = WatermarkStrategy.for_monotonous_timestamps()


class ByField(TimestampAssigner):
    def extract_timestamp(self, value, record_timestamp):
        return value[1]


class Alarms(KeyedProcessFunction):
    """A timer for every record, at its own time."""

    def process_element(self, value, ctx):
        ctx.timer_service().register_event_time_timer(value[1])

    def on_timer(self, timestamp, ctx):
        yield ctx.get_current_key(), timestamp


class Punctuated(WatermarkGenerator):
    """A watermark behind every record."""

    def on_event(self, event, event_timestamp, output):
        output.emit_watermark(event_timestamp)

    def on_periodic_emit(self, output):
        pass


class Seen(ProcessFunction):
    """The record's time, and the watermark when it came."""

    def process_element(self, value, ctx):
        yield value, ctx.timestamp(), ctx.timer_service().current_watermark()


def test_timers_fire_at_the_end_of_the_input_even_without_watermarks(env):
    alarms = env.from_collection([("a", 5), ("b", 3), ("a", 1)]).key_by(lambda r: r[0])
    assert in_any_order(alarms.process(Alarms())) == [("a", 1), ("a", 5), ("b", 3)]


def test_timers_fire_at_the_end_of_the_input_on_spark(spark_env):
    alarms = spark_env.from_collection([("a", 5), ("b", 3), ("a", 1)])
    alarms = alarms.assign_timestamps_and_watermarks(ASCENDING.with_timestamp_assigner(ByField()))
    assert in_any_order(alarms.key_by(lambda r: r[0]).process(Alarms())) == [
        ("a", 1),
        ("a", 5),
        ("b", 3),
    ]


@pytest.mark.parametrize("assigner", [ByField(), lambda value, before: value[1]])
def test_an_assigner_gives_every_record_its_time(env, assigner):
    strategy = ASCENDING.with_timestamp_assigner(assigner)
    records = [("a", 7), ("b", 4)]
    stream = env.from_collection(records).assign_timestamps_and_watermarks(strategy)
    found = in_any_order(stream.process(Seen()))
    assert found == [(records[0], 7, NO_WATERMARK), (records[1], 4, NO_WATERMARK)]


@pytest.mark.parametrize("field", ["at", 1])
def test_a_field_of_a_typed_stream_may_hold_the_time(env, field):
    strategy = ASCENDING.with_timestamp_assigner(field)
    stream = env.from_collection([("a", 7), ("b", 4)], PAIR)
    seen = stream.assign_timestamps_and_watermarks(strategy).process(Seen())
    assert sorted(at for _, at, _ in collect(seen)) == [4, 7]


def test_a_field_that_cannot_be_the_time_is_refused(env):
    typed = env.from_collection([("a", 7)], PAIR)
    untyped = env.from_collection([("a", 7)])
    with pytest.raises(MissingField, match="'when'"):
        typed.assign_timestamps_and_watermarks(ASCENDING.with_timestamp_assigner("when"))
    with pytest.raises(GraphError, match="the field holds string"):
        typed.assign_timestamps_and_watermarks(ASCENDING.with_timestamp_assigner("key"))
    with pytest.raises(GraphError, match="records of the stream have none"):
        untyped.assign_timestamps_and_watermarks(ASCENDING.with_timestamp_assigner("at"))


def test_a_generator_of_ones_own_emits_between_records(env):
    strategy = WatermarkStrategy.for_generator(Punctuated).with_timestamp_assigner(ByField())
    records = [("a", 2), ("a", 1), ("a", 9)]
    env.set_parallelism(1)
    stream = env.from_collection(records).assign_timestamps_and_watermarks(strategy)
    assert collect(stream.process(Seen())) == [
        (("a", 2), 2, NO_WATERMARK),
        (("a", 1), 1, 2),
        (("a", 9), 9, 2),
    ]


def test_timers_fire_in_the_order_of_their_times_when_the_watermark_passes_them(env):
    class Later(Alarms):
        def process_element(self, value, ctx):
            yield "at", value[1], ctx.timer_service().current_watermark()
            for delay in (20, 5, 5, 7):
                ctx.timer_service().register_event_time_timer(value[1] + delay)
            ctx.timer_service().delete_event_time_timer(value[1] + 7)

        def on_timer(self, timestamp, ctx):
            yield "timer", timestamp, ctx.timer_service().current_watermark()

    strategy = WatermarkStrategy.for_generator(Punctuated).with_timestamp_assigner(ByField())
    env.set_parallelism(1)
    stream = env.from_collection([("a", 10), ("a", 16), ("a", 17)])
    stream = stream.assign_timestamps_and_watermarks(strategy).key_by(lambda r: r[0])
    assert collect(stream.process(Later())) == [
        ("at", 10, NO_WATERMARK),
        ("at", 16, 10),
        ("timer", 15, 16),
        ("at", 17, 16),
        ("timer", 21, FINAL_WATERMARK),
        ("timer", 22, FINAL_WATERMARK),
        ("timer", 30, FINAL_WATERMARK),
        ("timer", 36, FINAL_WATERMARK),
        ("timer", 37, FINAL_WATERMARK),
    ]


def test_the_results_of_a_timer_have_its_time(env):
    strategy = ASCENDING.with_timestamp_assigner(ByField())
    stream = env.from_collection([("a", 10)]).assign_timestamps_and_watermarks(strategy)
    timed = stream.key_by(lambda r: r[0]).process(Alarms()).process(Seen())
    assert [at for _, at, _ in collect(timed)] == [10]


def test_a_source_has_event_time_by_its_strategy(env):
    from tidegate.testing.scripted import ScriptedSource

    strategy = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_millis(5))
    strategy = strategy.with_timestamp_assigner("at")
    source = ScriptedSource([("a", 30), ("b", 10)], type_info=PAIR)
    stream = env.from_source(source, strategy, "timed")
    assert sorted(at for _, at, _ in collect(stream.process(Seen()))) == [10, 30]
    with pytest.raises(MissingField):
        env.from_source(source, strategy.with_timestamp_assigner("when"), "timed")


def test_a_timestamp_that_is_no_integer_names_its_record(env):
    strategy = ASCENDING.with_timestamp_assigner(lambda value, before: value[1])
    stream = env.from_collection([("a", 1), ("b", 2.5)]).assign_timestamps_and_watermarks(strategy)
    with pytest.raises(UserFunctionError, match=r"('b', 2.5)") as failure:
        collect(stream)
    assert "a timestamp is an integer" in str(failure.value)


class Paired(KeyedCoProcessFunction):
    def process_element1(self, value, ctx):
        ctx.timer_service().register_event_time_timer(ctx.timestamp() + 1)

    process_element2 = process_element1

    def on_timer(self, timestamp, ctx):
        yield ctx.get_current_key(), timestamp, ctx.timestamp()


def test_timers_of_connected_streams_fire(env):
    strategy = ASCENDING.with_timestamp_assigner(ByField())
    left = env.from_collection([("a", 1)]).assign_timestamps_and_watermarks(strategy)
    right = env.from_collection([("a", 5)]).assign_timestamps_and_watermarks(strategy)
    both = left.connect(right).key_by(lambda r: r[0], lambda r: r[0])
    assert in_any_order(both.process(Paired())) == [("a", 2, 2), ("a", 6, 6)]


def test_timers_beside_a_broadcast_stream_fire(env):
    rules = MapStateDescriptor("rules", Types.STRING(), Types.STRING())

    class Ruled(KeyedBroadcastProcessFunction):
        def process_element(self, value, ctx):
            ctx.timer_service().register_event_time_timer(value[1])

        def process_broadcast_element(self, value, ctx):
            ctx.get_broadcast_state(rules).put(value, value)

        def on_timer(self, timestamp, ctx):
            rule = ctx.get_broadcast_state(rules).get("r")
            yield ctx.get_current_key(), timestamp, rule, ctx.current_watermark()

    strategy = ASCENDING.with_timestamp_assigner(ByField())
    stream = env.from_collection([("a", 4)]).assign_timestamps_and_watermarks(strategy)
    broadcast = env.from_collection(["r"]).broadcast(rules)
    found = collect(stream.key_by(lambda r: r[0]).connect(broadcast).process(Ruled()))
    assert found == [("a", 4, "r", FINAL_WATERMARK)]
