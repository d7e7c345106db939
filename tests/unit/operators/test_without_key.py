"""Keyed state and timers are refused where there is no key, instead of meaning the last one."""

import pytest

from tidegate.core.errors import UserFunctionError
from tidegate.core.modes import StateBackendType
from tidegate.operators.checkpointed import CheckpointedFunction, CheckpointListener
from tidegate.operators.functions import KeyedProcessFunction
from tidegate.operators.keyed import KeyedProcessOperator
from tidegate.state.descriptors import (
    ListStateDescriptor,
    MapStateDescriptor,
    ValueStateDescriptor,
)
from tidegate.state.keys.selection import select_key
from tidegate.testing.harness import OperatorHarness

TOUCHES = {
    "read": lambda f: f.value.value(),
    "update": lambda f: f.value.update("not mine"),
    "clear": lambda f: f.value.clear(),
    "add": lambda f: f.list.add("not mine"),
    "put": lambda f: f.map.put("not", "mine"),
    "contains": lambda f: f.map.contains("not"),
    "timer": lambda f: f.timers.register_processing_time_timer(1),
    "forget timer": lambda f: f.timers.delete_event_time_timer(1),
}


class Touching(KeyedProcessFunction, CheckpointedFunction, CheckpointListener):
    """Touches its state in one place beside the records."""

    def __init__(self, place, how="update"):
        self.place = place
        self.how = how

    def open(self, runtime_context):
        self.value = runtime_context.get_state(ValueStateDescriptor("value"))
        self.list = runtime_context.get_list_state(ListStateDescriptor("list"))
        self.map = runtime_context.get_map_state(MapStateDescriptor("map"))
        self.touch("open")

    def touch(self, place):
        if place == self.place:
            TOUCHES[self.how](self)

    def process_element(self, value, ctx):
        self.timers = ctx.timer_service()
        yield self.value.value()
        self.value.update(value)

    def initialize_state(self, context):
        pass

    def snapshot_state(self, context):
        self.touch("snapshot")

    def notify_checkpoint_complete(self, checkpoint_id):
        self.touch("complete")

    def notify_checkpoint_aborted(self, checkpoint_id):
        self.touch("aborted")

    def close(self):
        self.touch("close")


def operator(*how):
    return KeyedProcessOperator(Touching(*how), [select_key(lambda n: n % 2)])


@pytest.mark.parametrize("backend", StateBackendType)
@pytest.mark.parametrize("place", ["snapshot", "complete", "aborted", "close"])
def test_state_beside_the_records_is_refused(place, backend):
    harness = OperatorHarness(operator(place), settings={"state.backend.type": backend})
    harness.process([1, 2])
    touch = {
        "snapshot": harness.snapshot,
        "complete": harness.complete_checkpoint,
        "aborted": harness.abort_checkpoint,
        "close": harness.close,
    }[place]
    with pytest.raises(UserFunctionError, match="there is no current key"):
        touch()


def test_state_is_refused_while_the_function_is_opened():
    with pytest.raises(UserFunctionError, match="there is no current key"):
        OperatorHarness(operator("open"))


@pytest.mark.parametrize("how", TOUCHES)
def test_whatever_is_done_with_it_is_refused(how):
    with OperatorHarness(operator("complete", how)) as harness:
        harness.process([1, 2])
        harness.snapshot()
        with pytest.raises(UserFunctionError, match="there is no current key"):
            harness.complete_checkpoint()
        harness.process([3, 4])
        assert harness.output == [None, None, 1, 2]


class TouchesAfterATimer(Touching):
    def process_element(self, value, ctx):
        self.timers = ctx.timer_service()
        self.timers.register_processing_time_timer(1)

    def on_timer(self, timestamp, ctx):
        self.value.update("mine")
        yield self.value.value()


def test_the_key_of_a_timer_is_left_with_it():
    touching = KeyedProcessOperator(TouchesAfterATimer("complete"), [select_key(lambda n: n)])
    with OperatorHarness(touching) as harness:
        harness.process([1])
        harness.advance(1)
        assert harness.output == ["mine"]
        harness.snapshot()
        with pytest.raises(UserFunctionError, match="there is no current key"):
            harness.complete_checkpoint()
