import pytest

from tidegate.core.errors import UserFunctionError
from tidegate.operators.functions import KeyedProcessFunction, TimeDomain
from tidegate.operators.keyed import KeyedProcessOperator
from tidegate.state.descriptors import ValueStateDescriptor
from tidegate.state.keys.selection import select_key
from tidegate.testing.harness import OperatorHarness

BY_FIRST = select_key(0)


class Reminders(KeyedProcessFunction):
    """Sets a timer for every record, in so many milliseconds."""

    def open(self, runtime_context):
        self.last = runtime_context.get_state(ValueStateDescriptor("last"))

    def process_element(self, value, ctx):
        timers = ctx.timer_service()
        self.last.update(value[1])
        timers.register_processing_time_timer(timers.current_processing_time() + value[1])

    def on_timer(self, timestamp, ctx):
        assert ctx.timestamp() == timestamp
        assert ctx.time_domain() is TimeDomain.PROCESSING_TIME
        yield timestamp, ctx.get_current_key(), self.last.value()


@pytest.fixture
def harness():
    with OperatorHarness(KeyedProcessOperator(Reminders(), [BY_FIRST])) as harness:
        yield harness


def test_a_timer_fires_for_its_key_with_its_state(harness):
    harness.process([("a", 2000), ("b", 1000)])
    assert harness.operator.next_timer() == 1.0
    harness.advance(0.999)
    assert harness.output == []
    harness.advance(0.001)
    assert harness.output == [(1000, "b", 1000)]
    harness.advance(5)
    assert harness.output == [(1000, "b", 1000), (2000, "a", 2000)]
    assert harness.operator.next_timer() is None


def test_the_same_time_registered_twice_by_a_key_fires_once(harness):
    harness.process([("a", 1000), ("a", 1000), ("b", 1000)])
    harness.advance(1)
    assert harness.output == [(1000, "a", 1000), (1000, "b", 1000)]


def test_timers_are_restored_with_the_keyed_state(harness):
    harness.process([("a", 1000), ("b", 3000)])
    snapshot = harness.snapshot()
    again = KeyedProcessOperator(Reminders(), [BY_FIRST])
    with OperatorHarness(again, restore_from=[snapshot]) as restored:
        restored.advance(10)
        assert restored.output == [(1000, "a", 1000), (3000, "b", 3000)]


def test_timers_go_with_the_key_groups_of_their_keys(harness):
    keys = [f"key-{i}" for i in range(40)]
    harness.process([(key, 1000) for key in keys])
    snapshot = harness.snapshot()
    fired = []
    for subtask in range(3):
        again = KeyedProcessOperator(Reminders(), [BY_FIRST])
        with OperatorHarness(
            again, parallelism=3, subtask=subtask, restore_from=[snapshot]
        ) as part:
            part.advance(1)
            assert 0 < len(part.output) < 40
            fired += [key for _, key, _ in part.output]
    assert sorted(fired) == sorted(keys)


def test_a_deleted_timer_does_not_fire():
    class Changes(Reminders):
        def process_element(self, value, ctx):
            if value[1] is None:
                ctx.timer_service().delete_processing_time_timer(1000)
            else:
                ctx.timer_service().register_processing_time_timer(value[1])

    with OperatorHarness(KeyedProcessOperator(Changes(), [BY_FIRST])) as harness:
        harness.process([("a", 1000), ("b", 1000), ("a", None)])
        harness.advance(1)
        assert harness.output == [(1000, "b", None)]


def test_a_timer_may_set_the_next_one():
    class Ticks(KeyedProcessFunction):
        def process_element(self, value, ctx):
            ctx.timer_service().register_processing_time_timer(100)

        def on_timer(self, timestamp, ctx):
            if timestamp < 300:
                ctx.timer_service().register_processing_time_timer(timestamp + 100)
            return [timestamp]

    with OperatorHarness(KeyedProcessOperator(Ticks(), [BY_FIRST])) as harness:
        harness.process([("a", 0)])
        harness.clock.advance(10)
        harness.operator.fire_timers(10.0)
        assert harness.output == [100, 200, 300]


def test_event_time_timers_fire_with_the_watermark_before_it_continues():
    class Late(KeyedProcessFunction):
        def process_element(self, value, ctx):
            ctx.timer_service().register_event_time_timer(value[1])
            ctx.timer_service().register_event_time_timer(99)
            ctx.timer_service().delete_event_time_timer(99)

        def on_timer(self, timestamp, ctx):
            service = ctx.timer_service()
            yield timestamp, ctx.get_current_key(), ctx.time_domain(), service.current_watermark()

    with OperatorHarness(KeyedProcessOperator(Late(), [BY_FIRST])) as harness:
        harness.process([("a", 20), ("b", 10)])
        harness.watermark(15)
        assert harness.output == [(10, "b", TimeDomain.EVENT_TIME, 15)]
        assert harness.batches[0].timestamps.tolist() == [10]
        assert [watermark.timestamp for watermark in harness.watermarks] == [15]
        harness.watermark(200)
        assert [result[:2] for result in harness.output] == [(10, "b"), (20, "a")]


def test_what_came_before_a_failing_timer_goes_out_first():
    class Fails(Reminders):
        def on_timer(self, timestamp, ctx):
            if timestamp == 2000:
                raise RuntimeError("too late")
            return [timestamp]

    with OperatorHarness(KeyedProcessOperator(Fails(), [BY_FIRST]), name="Alarm") as harness:
        harness.process([("a", 1000), ("a", 2000), ("a", 3000)])
        harness.clock.advance(10)
        with pytest.raises(UserFunctionError, match="too late") as failure:
            harness.operator.fire_timers(10.0)
        assert harness.output == [1000]
    assert "in operator 'Alarm'" in str(failure.value)
