"""Keyed operators give the same results whatever the state backend."""

import pytest

from tidegate.core.modes import StateBackendType
from tidegate.operators.functions import KeyedProcessFunction
from tidegate.operators.keyed import KeyedProcessOperator, KeyedReduceOperator
from tidegate.state.descriptors import ValueStateDescriptor
from tidegate.state.keys.selection import select_key
from tidegate.state.rocksdb.backend import RocksDBBackend
from tidegate.testing.harness import OperatorHarness
from tidegate.types.typeinfo import Types

PAIR = Types.TUPLE([Types.STRING(), Types.LONG()])


@pytest.fixture(params=StateBackendType)
def settings(request, tmp_path):
    local = (str(tmp_path / "disk"),)
    return {"state.backend.type": request.param, "state.backend.rocksdb.localdir": local}


class Sums(KeyedProcessFunction):
    """Adds up, and reports the sum of the key a second after its first record."""

    def open(self, runtime_context):
        self.total = runtime_context.get_state(ValueStateDescriptor("total", Types.LONG()))

    def process_element(self, value, ctx):
        if self.total.value() is None:
            now = ctx.timer_service().current_processing_time()
            ctx.timer_service().register_processing_time_timer(now + 1_000)
        self.total.update((self.total.value() or 0) + value[1])

    def on_timer(self, timestamp, ctx):
        yield ctx.get_current_key(), self.total.value()
        self.total.clear()


def forget(harness):
    """Send keys to disk, where the backend has one."""
    if isinstance(harness.operator.backend, RocksDBBackend):
        harness.operator.backend.shrink(0)


@pytest.mark.parametrize("type_info", [None, PAIR])
def test_timers_fire_with_the_state_of_their_key_also_after_a_restore(settings, type_info):
    operator = KeyedProcessOperator(Sums(), [select_key(0, type_info)])
    records = [(f"key-{i % 7}", i) for i in range(70)]
    expected = [(f"key-{k}", sum(range(k, 70, 7))) for k in range(7)]
    with OperatorHarness(operator, settings=settings) as harness:
        harness.process(records[:40], type_info=type_info)
        forget(harness)
        harness.process(records[40:], type_info=type_info)
        forget(harness)
        snapshot = harness.snapshot()
        harness.advance(2)
        assert sorted(harness.output) == expected
        with OperatorHarness(operator, settings=settings, restore_from=[snapshot]) as restored:
            restored.advance(2)
            assert sorted(restored.output) == expected
            restored.process([("key-0", 5)], type_info=type_info)
            restored.advance(2)
            assert restored.output[7:] == [("key-0", 5)]


def test_reduce_continues_with_what_left_memory(settings):
    operator = KeyedReduceOperator(lambda a, b: (a[0], a[1] + b[1]), [select_key(0)])
    with OperatorHarness(operator, settings=settings) as harness:
        harness.process([("a", 1), ("b", 2)])
        forget(harness)
        harness.process([("a", 10), ("c", 3)])
        assert harness.output == [("a", 1), ("b", 2), ("a", 11), ("c", 3)]


def test_a_database_is_where_the_settings_say_until_the_operator_is_closed(settings, tmp_path):
    operator = KeyedReduceOperator(max, [select_key(0)])
    with OperatorHarness(operator, settings=settings):
        uses_disk = settings["state.backend.type"] is StateBackendType.ROCKSDB
        assert (tmp_path / "disk").exists() == uses_disk
    assert not list(tmp_path.glob("disk/*"))
