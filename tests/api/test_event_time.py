"""Event time: where timestamps and watermarks come from, and what they set off."""

import pytest

from tests.api.results import collect, in_any_order
from tests.programs import wait_until
from tidegate.cli.commands import info
from tidegate.common import (
    Duration,
    JobClient,
    TimestampAssigner,
    Types,
    WatermarkGenerator,
    WatermarkStrategy,
)
from tidegate.core.clock import ManualClock
from tidegate.core.errors import GraphError, MissingField, UserFunctionError
from tidegate.datastream import (
    KeyedBroadcastProcessFunction,
    KeyedCoProcessFunction,
    KeyedProcessFunction,
    ProcessFunction,
)
from tidegate.operators.endpoints.operators import SourceOperator
from tidegate.operators.event_time.assigning import assign_timestamps
from tidegate.state.descriptors import MapStateDescriptor
from tidegate.stream.elements import FINAL_WATERMARK, NO_WATERMARK, Watermark, WatermarkStatus
from tidegate.testing.harness import OperatorHarness
from tidegate.testing.scripted import Fail, Pause, ScriptedSource
from tidegate.web.documents.jobs import job_details
from tidegate.web.documents.vertices import watermarks
from tidegate.web.forms import as_document
from tidegate.web.metrics import rendered

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
    with pytest.raises(GraphError, match="the field is a string"):
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


# --- restarts -----------------------------------------------------------------------------------


class Late(KeyedProcessFunction):
    """What comes behind the watermark is dropped, and said so; the rest sets a timer."""

    def process_element(self, value, ctx):
        is_late = ctx.timestamp() <= ctx.timer_service().current_watermark()
        if not is_late:
            ctx.timer_service().register_event_time_timer(ctx.timestamp())
        yield value, "late" if is_late else "on time"

    def on_timer(self, timestamp, ctx):
        yield ctx.get_current_key(), timestamp, "timer"


RECORDS = [("a", 50), ("b", 70), ("a", 60), ("b", 65), ("a", 90), ("b", 80), ("a", 85)]


def late_records(env, *, until_attempt, parallelism=2):
    class Once(WatermarkGenerator):
        """A watermark behind the second record alone: later records tell whether it is kept."""

        count = 0

        def on_event(self, event, event_timestamp, output):
            self.count += 1
            if self.count == 2:
                output.emit_watermark(event_timestamp)

        def on_periodic_emit(self, output):
            pass

    env.configure({"execution.checkpointing.interval": "10 ms", "tidegate.step.max-records": 1})
    env.configure({"restart-strategy.type": "fixed-delay", "restart-strategy.fixed-delay.delay": 0})
    strategy = WatermarkStrategy.for_generator(Once).with_timestamp_assigner(ByField())
    script = [*RECORDS[:2], Pause(0.3), Fail(until_attempt=until_attempt), *RECORDS[2:]]
    stream = env.from_source(ScriptedSource(script), strategy, "timed")
    return sorted(
        collect(stream.set_parallelism(1).key_by(lambda r: r[0]).process(Late())), key=repr
    )


@pytest.mark.parametrize("until_attempt", [0, 1])
def test_a_restored_job_drops_what_the_undisturbed_one_dropped(env, until_attempt):
    found = late_records(env, until_attempt=until_attempt)
    assert [value for value, *rest in found if rest == ["late"]] == [("a", 60), ("b", 65)]
    assert sorted(f[1] for f in found if f[-1] == "timer") == [50, 70, 80, 85, 90]


class Ticks(KeyedProcessFunction):
    """The watermarks that timers see, every ten milliseconds of event time."""

    def process_element(self, value, ctx):
        ctx.timer_service().register_event_time_timer(value[1] // 10 * 10 + 9)

    def on_timer(self, timestamp, ctx):
        yield timestamp, ctx.timer_service().current_watermark()


def test_every_split_has_its_own_generator_and_the_slowest_counts(env):
    """Read one after the other by one reader, each file has ascending times of its own."""
    source = ScriptedSource([("a", 5), ("a", 50)], [("a", 7), ("a", 40)])
    strategy = WatermarkStrategy.for_generator(Punctuated).with_timestamp_assigner(ByField())
    stream = env.from_source(source, strategy, "timed").set_parallelism(1)
    seen = collect(stream.process(Seen()).set_parallelism(1))
    assert [(at, watermark) for _, at, watermark in seen] == [
        (5, NO_WATERMARK),
        (50, 5),
        (7, 50),
        (40, 50),
    ]


def test_an_idle_input_holds_nothing_back(env):
    env.configure({"pipeline.auto-watermark-interval": "1 ms"})
    by_field = ASCENDING.with_timestamp_assigner(ByField())
    busy = ScriptedSource([("a", 5), ("a", 50), Pause(600)])
    silent = ScriptedSource([("b", 1), Pause(600)])
    left = env.from_source(busy, by_field, "busy")
    right = env.from_source(silent, by_field.with_idleness("10 ms"), "silent")
    united = left.set_parallelism(1).union(right.set_parallelism(1))
    ticks = united.key_by(lambda r: r[0]).process(Ticks())
    assert sorted(ticks.execute_and_collect(limit=2)) == [(9, 49), (9, 49)]


def test_a_source_that_is_idle_becomes_active_with_its_next_record(env):
    clock = ManualClock()
    operator = SourceOperator(
        ScriptedSource([("a", 5), Pause(10), ("a", 50), Pause(10), ("a", 40), ("a", 60)]),
        strategy=ASCENDING.with_timestamp_assigner(ByField()).with_idleness("5 s"),
    )
    with OperatorHarness(operator, clock=clock) as harness:
        harness.assign_all_splits()
        harness.run_slice()
        harness.advance(4)
        assert (harness.watermarks, harness.statuses) == ([Watermark(4)], [])
        harness.advance(1)
        assert harness.statuses == [WatermarkStatus.IDLE]
        assert harness.operator.next_timer() is None
        harness.advance(6)
        harness.run_slice()
        assert harness.statuses == [WatermarkStatus.IDLE, WatermarkStatus.ACTIVE]
        assert harness.timed_output == [(("a", 5), 5), (("a", 50), 50)]
        assert harness.watermarks == [Watermark(4), Watermark(49)]
        snapshot = harness.snapshot()
    with harness.restore(snapshot) as restored:
        restored.run_slice()
        restored.advance(11)
        assert restored.watermarks == []
        restored.run_slice()
        assert restored.watermarks == [Watermark(59)]


def test_watermarks_and_idle_channels_can_be_looked_up(env):
    env.configure({"pipeline.auto-watermark-interval": "1 ms"})
    by_field = ASCENDING.with_timestamp_assigner(ByField())
    busy = env.from_source(ScriptedSource([("a", 5), ("a", 50), Pause(600)]), by_field, "busy")
    silent = ScriptedSource([Pause(600), ("b", 1)])
    silent = env.from_source(silent, by_field.with_idleness("10 ms"), "silent")
    united = busy.set_parallelism(1).union(silent.set_parallelism(1))
    united.key_by(lambda r: r[0]).process(Ticks()).add_sink(lambda found: None)
    job = env._submit("timed")
    try:
        wait_until(lambda: job.vertices()[-1].watermark == 49)
        wait_until(lambda: job.vertices()[-1].subtasks[0].idle_channels == 1)
        slowest = job.vertices()[-1]
        assert [(each.id, each.value) for each in watermarks(slowest)] == [
            ("0.currentInputWatermark", "49"),
            ("1.currentInputWatermark", "49"),
        ]
        assert "flink_taskmanager_job_task_currentInputWatermark" in rendered([job]).decode()
        overview = as_document(job_details(job, None).vertices[-1].tidegate)
        assert overview == {"watermark": 49, "idle-channels": 2}
        assert info._watermark(overview) == "1970-01-01 00:00:00.049 (2 idle)"
    finally:
        JobClient(job).cancel_and_wait()


def test_an_aligned_source_waits_for_the_slowest_of_its_group(env):
    """The fast source has ten minutes of event time at hand; the slow one stands at 5 ms."""
    env.configure({"pipeline.auto-watermark-interval": "1 ms", "tidegate.step.max-records": 20})
    strategy = ASCENDING.with_timestamp_assigner(ByField())
    aligned = strategy.with_watermark_alignment("all", "100 ms", "1 ms")
    fast = [("f", at) for at in range(0, 600_000, 500)]
    slow = ScriptedSource([("s", 5), ("s", 6), Pause(1), ("s", 1_000_000)])
    fast_stream = env.from_source(ScriptedSource(fast), aligned, "fast").set_parallelism(1)
    slow_stream = env.from_source(slow, aligned, "slow").set_parallelism(1)
    found = [
        value
        for value, *_ in collect(fast_stream.union(slow_stream).process(Seen()).set_parallelism(1))
    ]
    read_before = found[: found.index(("s", 1_000_000))]
    assert len(read_before) < len(fast) / 2  # a few steps, until all have reported
    assert len(found) == len(fast) + 3


def test_what_was_idle_before_a_restore_says_so_and_becomes_active_with_a_record():
    strategy = ASCENDING.with_timestamp_assigner(ByField()).with_idleness("5 s")
    with OperatorHarness(assign_timestamps(strategy, None)) as harness:
        harness.process([("a", 5)])
        harness.advance(6)
        snapshot = harness.snapshot()
    with harness.restore(snapshot) as restored:
        restored.advance(0)
        assert restored.statuses == [WatermarkStatus.IDLE]
        restored.process([("a", 3)])
        restored.advance(1)
        assert restored.statuses == [WatermarkStatus.IDLE, WatermarkStatus.ACTIVE]
        assert restored.watermarks == []
