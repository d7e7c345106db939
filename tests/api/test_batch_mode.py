"""Bounded programs in batch mode: only final results, nothing is late, timers fire at the end."""

import pytest

from tests.api.results import collect, in_any_order
from tidegate.common import Time, Types, WatermarkStrategy
from tidegate.datastream import RuntimeExecutionMode, TimeDomain
from tidegate.datastream.functions import KeyedProcessFunction
from tidegate.datastream.window import (
    ContinuousProcessingTimeTrigger,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
)
from tidegate.operators.event_time.strategy import WatermarkGenerator
from tidegate.stream.elements import NO_WATERMARK

RECORDS = [("a", 1, 50_000), ("b", 2, 1_000), ("a", 3, 2_000), ("a", 4, 51_000)]
TYPE = Types.ROW_NAMED(["key", "value", "at"], [Types.STRING(), Types.LONG(), Types.LONG()])


class AfterEveryRecord(WatermarkGenerator):
    def on_event(self, event, event_timestamp, output):
        output.emit_watermark(event_timestamp)

    def on_periodic_emit(self, output):
        pass


@pytest.fixture(params=[RuntimeExecutionMode.BATCH, RuntimeExecutionMode.AUTOMATIC])
def batch(env, request):
    return env.set_runtime_mode(request.param).set_parallelism(1)


def timed(env, type_info=None):
    strategy = WatermarkStrategy.for_generator(AfterEveryRecord)
    return env.from_collection(RECORDS, type_info).assign_timestamps_and_watermarks(
        strategy.with_timestamp_assigner(lambda record, _: record[2])
    )


@pytest.mark.parametrize("type_info", [None, TYPE])
def test_no_record_is_late(batch, type_info):
    windows = (
        timed(batch, type_info)
        .key_by(lambda record: record[0])
        .window(TumblingEventTimeWindows.of(Time.seconds(10)))
    )
    found = in_any_order(windows.sum(1).map(lambda record: tuple(record)[:2]))
    assert found == [("a", 3), ("a", 5), ("b", 2)]


class Reminders(KeyedProcessFunction):
    def process_element(self, value, ctx):
        service = ctx.timer_service()
        assert service.current_watermark() == NO_WATERMARK
        service.register_event_time_timer(ctx.timestamp() + 1)
        service.register_processing_time_timer(service.current_processing_time() + 3_600_000)
        yield "record", value[1]

    def on_timer(self, timestamp, ctx):
        if ctx.time_domain() is TimeDomain.EVENT_TIME:
            yield ctx.get_current_key(), timestamp
        else:
            # As in Flink, this one never fires.
            ctx.timer_service().register_processing_time_timer(timestamp + 3_600_000)
            yield ctx.get_current_key(), "an hour later"


def test_timers_of_both_clocks_fire_at_the_end_of_the_input(batch):
    found = collect(timed(batch).key_by(lambda record: record[0]).process(Reminders()))
    assert found[:8] == [
        ("record", 1),
        ("record", 2),
        ("record", 3),
        ("record", 4),
        ("b", 1_001),
        ("a", 2_001),
        ("a", 50_001),
        ("a", 51_001),
    ]
    assert set(found[8:]) == {("a", "an hour later"), ("b", "an hour later")}


@pytest.mark.parametrize("type_info", [None, TYPE])
@pytest.mark.parametrize("trigger", [None, ContinuousProcessingTimeTrigger.of(Time.hours(1))])
def test_windows_of_processing_time_do_not_wait(batch, type_info, trigger):
    keyed = batch.from_collection(RECORDS, type_info).key_by(lambda record: record[0])
    windows = keyed.window(TumblingProcessingTimeWindows.of(Time.days(1)))
    if trigger is not None:
        windows = windows.trigger(trigger)
    found = in_any_order(windows.sum(1).map(lambda record: tuple(record)[:2]))
    assert set(found) == {("a", 8), ("b", 2)}
