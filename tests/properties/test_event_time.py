"""Late records against a naive interpreter, over failures and rescalings; rescaled watermarks."""

from __future__ import annotations

from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from tests.effort import examples
from tests.programs import PATIENCE, wait_until
from tests.taps import Tap
from tidegate.common import WatermarkGenerator, WatermarkStrategy
from tidegate.datastream import KeyedProcessFunction
from tidegate.protocol.input_gate import InputGate, TakeSnapshot
from tidegate.protocol.packet import Channel
from tidegate.stream.elements import Barrier, EndOfInput, Watermark
from tidegate.testing.environments import mini_environment
from tidegate.testing.scripted import CollectingSink

Records = list[tuple[int, int]]
"""(number, time)"""


class EveryThird(WatermarkGenerator):
    """Emits the highest time after every third record: its counter must be restored."""

    def __init__(self) -> None:
        self.count = 0
        self.highest = 0

    def on_event(self, event: Any, event_timestamp: int, output: Any) -> None:
        self.count += 1
        self.highest = max(self.highest, event_timestamp)
        if self.count % 3 == 0:
            output.emit_watermark(self.highest)

    def on_periodic_emit(self, output: Any) -> None: ...


class Judge(KeyedProcessFunction):
    """Whether each record is late, and when its timer fires."""

    def process_element(self, value: Any, ctx: Any) -> Any:
        is_late = ctx.timestamp() <= ctx.timer_service().current_watermark()
        if not is_late:
            ctx.timer_service().register_event_time_timer(ctx.timestamp())
        yield value[0], "late" if is_late else "on time"

    def on_timer(self, timestamp: int, ctx: Any) -> Any:
        yield ctx.get_current_key(), timestamp


def naive(records: Records) -> set[tuple[int, Any]]:
    """The expected results, record by record."""
    found: set[tuple[int, Any]] = set()
    watermark, highest = -1, 0
    for count, (number, time) in enumerate(records, 1):
        is_late = time <= watermark
        found.add((number, "late" if is_late else "on time"))
        if not is_late:
            found.add((number % 7, time))
        highest = max(highest, time)
        watermark = highest if count % 3 == 0 else watermark
    return found


@st.composite
def disturbed_runs(draw: Any) -> tuple[Records, list[tuple[int, int]], str]:
    """Records, and after how many of them, but not the last, the job is rescaled to what."""
    times = draw(st.lists(st.integers(0, 30), min_size=6, max_size=24))
    places = draw(st.lists(st.integers(1, len(times) - 1), max_size=2, unique=True).map(sorted))
    rescalings = [(place, draw(st.integers(1, 3))) for place in places]
    backend = draw(st.sampled_from(["hashmap", "rocksdb"]))
    return list(enumerate(times)), rescalings, backend


@examples(3)
@given(disturbed_runs())
@example((list(enumerate([10, 20, 30, 25, 31, 40, 35, 39, 5, 50])), [(3, 3), (5, 1)], "hashmap"))
def test_a_disturbed_run_drops_what_an_undisturbed_one_drops(
    run: tuple[Records, list[tuple[int, int]], str],
) -> None:
    records, rescalings, backend = run
    tap, sink = Tap(records), CollectingSink()
    settings = {"execution.checkpointing.interval": "1 h", "state.backend.type": backend}
    env = mini_environment(settings, parallelism=2)
    strategy = WatermarkStrategy.for_generator(EveryThird)
    strategy = strategy.with_timestamp_assigner(lambda value, before: value[1])
    source = env.from_source(tap).set_parallelism(1).uid("source")
    timed = (
        source.rebalance()
        .assign_timestamps_and_watermarks(strategy)
        .set_parallelism(1)
        .uid("times")
    )
    judged = timed.key_by(lambda value: value[0] % 7).process(Judge()).uid("judged")
    judged.sink_to(sink).uid("sink")
    job = env.execute_async("judged")
    for reached, parallelism in rescalings:
        tap.let_pass(reached)
        job.rescale(parallelism).result(PATIENCE)
    tap.let(len(records))
    job.wait(PATIENCE)
    assert set(sink.records) == naive(records)
    assert len([each for each in sink.records if isinstance(each[1], str)]) == len(records)


class EveryOne(WatermarkGenerator):
    def on_event(self, event: Any, event_timestamp: int, output: Any) -> None:
        output.emit_watermark(event_timestamp)

    def on_periodic_emit(self, output: Any) -> None: ...


def test_a_faster_input_need_not_say_again_how_far_it_is_when_its_readers_are_rescaled() -> None:
    fast, slow, sink = Tap([(0, 50), (2, 90)]), Tap([(1, 20), (1, 40), (3, 90)]), CollectingSink()
    env = mini_environment({"execution.checkpointing.interval": "1 h"}, parallelism=2)
    strategy = WatermarkStrategy.for_generator(EveryOne)
    strategy = strategy.with_timestamp_assigner(lambda value, before: value[1])
    timed = [
        env.from_source(tap).set_parallelism(1).assign_timestamps_and_watermarks(strategy)
        for tap in (fast, slow)
    ]
    judged = timed[0].set_parallelism(1).union(timed[1].set_parallelism(1))
    judged.key_by(lambda value: value[0]).process(Judge()).sink_to(sink)
    job = env.execute_async("judged")
    for tap in (fast, slow):
        tap.let(1)
    wait_until(lambda: (1, 20) in sink.records)
    job.rescale(3).result(PATIENCE)
    slow.let(2)
    wait_until(lambda: (1, 40) in sink.records, 20)
    fast.open()
    slow.open()
    job.wait(PATIENCE)


@examples(60)
@given(st.data())
def test_subtasks_after_a_hash_exchange_have_the_same_watermark_at_an_aligned_barrier(
    data: Any,
) -> None:
    """Every sender sends the same to all of them, in whatever order they read their channels."""
    channels = [Channel(0, i) for i in range(data.draw(st.integers(1, 3)))]  # type: ignore[arg-type]
    barrier = Barrier(1, 0.0)  # type: ignore[arg-type]
    sent = {}
    for channel in channels:
        times = st.lists(st.integers(0, 50).map(Watermark), max_size=4)
        before, after = data.draw(times), data.draw(times)
        end = data.draw(st.sampled_from([[], [EndOfInput()]]))
        sent[channel] = [*before, barrier, *after, *end]
    seen = set()
    for _ in range(3):
        gate = InputGate(dict.fromkeys(channels, 0))
        order = data.draw(st.permutations([c for c in channels for _ in sent[c]]))
        places = dict.fromkeys(channels, 0)
        for channel in order:
            for delivery in gate.feed(channel, sent[channel][places[channel]], 0.0):
                if isinstance(delivery, TakeSnapshot):
                    seen.add(None if delivery.time is None else delivery.time.received)
            places[channel] += 1
    assert len(seen) == 1
