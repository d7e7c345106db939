"""Operator state and broadcast state in whole programs, over failures too."""

import threading

from tests.api.results import collect, in_any_order
from tidegate.common import RestartStrategies, Types
from tidegate.datastream import (
    BroadcastProcessFunction,
    CheckpointedFunction,
    CheckpointListener,
    JobManagerCheckpointStorage,
    KeyedBroadcastProcessFunction,
    MapFunction,
    OutputTag,
    SourceFunction,
)
from tidegate.datastream.state import ListStateDescriptor, MapStateDescriptor

PAIR = Types.TUPLE([Types.STRING(), Types.LONG()])
RECORDS = [("a", 1), ("b", 10), ("a", 2), ("a", 3), ("b", 20)]
FACTOR = MapStateDescriptor("factor", Types.STRING(), Types.LONG())
WAITING = ListStateDescriptor("waiting", Types.LONG())


class TimesFactor(BroadcastProcessFunction):
    """Numbers times a factor; those that come before it wait for it."""

    def open(self, runtime_context):
        self.waiting = []

    def process_element(self, value, ctx):
        factor = ctx.get_broadcast_state(FACTOR).get("factor")
        if factor is None:
            self.waiting.append(value)
        else:
            yield value[0], value[1] * factor

    def process_broadcast_element(self, value, ctx):
        ctx.get_broadcast_state(FACTOR).put("factor", value)
        yield from ((key, number * value) for key, number in self.waiting)
        self.waiting.clear()


class KeyedTimesFactor(KeyedBroadcastProcessFunction):
    """The same, with the numbers that wait in the state of their key."""

    arrived = OutputTag("arrived", Types.LONG())

    def open(self, runtime_context):
        self.waiting = runtime_context.get_list_state(WAITING)

    def process_element(self, value, ctx):
        factor = ctx.get_broadcast_state(FACTOR).get("factor")
        if factor is None:
            self.waiting.add(value[1])
        else:
            yield ctx.get_current_key(), value[1] * factor

    def process_broadcast_element(self, value, ctx):
        ctx.get_broadcast_state(FACTOR).put("factor", value)
        results = []

        def take(key, waiting):
            results.extend((key, number * value) for number in waiting)
            waiting.clear()

        ctx.apply_to_keyed_state(WAITING, take)
        yield from results
        yield self.arrived, value


def test_every_subtask_sees_what_is_broadcast(env):
    factors = env.from_collection([3], Types.LONG()).broadcast(FACTOR)
    numbers = env.from_collection(RECORDS, PAIR).rebalance()
    stream = numbers.connect(factors).process(TimesFactor(), PAIR)
    assert in_any_order(stream) == [("a", 3), ("a", 6), ("a", 9), ("b", 30), ("b", 60)]


def test_keyed_records_wait_in_state_for_what_is_broadcast(env):
    factors = env.from_collection([3], Types.LONG()).broadcast(FACTOR)
    numbers = env.from_collection(RECORDS, PAIR).key_by(lambda pair: pair[0])
    stream = numbers.connect(factors).process(KeyedTimesFactor(), PAIR)
    assert in_any_order(stream) == [("a", 3), ("a", 6), ("a", 9), ("b", 30), ("b", 60)]
    assert collect(stream.get_side_output(KeyedTimesFactor.arrived)) == [3, 3]


HALF, END = 500, 1000


class Numbers(SourceFunction, CheckpointedFunction, CheckpointListener):
    """Numbers from 0. At first the second half waits until a checkpoint is durable."""

    def initialize_state(self, context):
        store = context.get_operator_state_store()
        self.position = store.get_list_state(ListStateDescriptor("position"))
        self.next = sum(self.position)
        self.may_go_on = threading.Event()
        if context.is_restored():
            self.may_go_on.set()

    def snapshot_state(self, context):
        self.position.update([self.next])

    def run(self, ctx):
        while self.next < END:
            if self.next == HALF:
                self.may_go_on.wait()
            with ctx.get_checkpoint_lock():
                self.next += 1
                ctx.collect(self.next - 1)

    def notify_checkpoint_complete(self, checkpoint_id):
        self.may_go_on.set()

    def cancel(self):
        self.may_go_on.set()
        self.next = END


class Total(MapFunction, CheckpointedFunction):
    """The sum of all numbers so far; it fails once, behind the first checkpoint."""

    def initialize_state(self, context):
        store = context.get_operator_state_store()
        self.totals = store.get_list_state(ListStateDescriptor("total", Types.LONG()))
        self.total = sum(self.totals)
        self.was_restored = context.is_restored()

    def snapshot_state(self, context):
        self.totals.update([self.total])

    def map(self, value):
        if value == HALF + 100 and not self.was_restored:
            raise RuntimeError("the only failure")
        self.total += value
        return self.was_restored, self.total


def with_checkpoints(env):
    env.enable_checkpointing(20)
    env.get_checkpoint_config().set_checkpoint_storage(JobManagerCheckpointStorage())
    env.set_restart_strategy(RestartStrategies.fixed_delay_restart(1, 1))
    return env


def test_operator_state_counts_every_record_once_over_a_failure(env):
    with_checkpoints(env).set_parallelism(1)
    found = collect(env.add_source(Numbers(), type_info=Types.LONG()).map(Total()))
    assert found[-1] == (True, sum(range(END)))
    before = [total for was_restored, total in found if not was_restored]
    assert before == [n * (n + 1) // 2 for n in range(len(before))]
    assert len(before) > HALF


class FactorOverAFailure(TimesFactor):
    def open(self, runtime_context):
        super().open(runtime_context)
        self.attempt = runtime_context.get_attempt_number()

    def process_element(self, value, ctx):
        if value[1] == HALF + 100 and self.attempt == 0:
            raise RuntimeError("the only failure")
        yield from super().process_element((self.attempt, value[1]), ctx)


def test_broadcast_state_is_there_after_a_failure(env):
    with_checkpoints(env)
    factors = env.from_collection([3], Types.LONG()).broadcast(FACTOR)
    numbers = env.add_source(Numbers(), type_info=Types.LONG()).map(lambda n: ("n", n), PAIR)
    stream = numbers.rebalance().connect(factors).process(FactorOverAFailure())
    found = collect(stream)
    again = sorted(number for attempt, number in found if attempt == 1)
    assert again == [number * 3 for number in range(again[0] // 3, END)]
    assert {number for _, number in found} == {number * 3 for number in range(END)}
