import pickle
from datetime import timedelta

import pytest

from tidegate.core.durations import Time
from tidegate.core.errors import ConfigError
from tidegate.operators.functions import AggregateFunction, ReduceFunction
from tidegate.state.descriptors import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateTtlConfig,
    ValueStateDescriptor,
)
from tidegate.types.typeinfo import Types


class Largest(ReduceFunction):
    def reduce(self, value1, value2):
        return max(value1, value2)


class Total(AggregateFunction):
    def create_accumulator(self):
        return 0

    def add(self, value, accumulator):
        return accumulator + value

    def get_result(self, accumulator):
        return accumulator


def test_a_descriptor_says_in_words_what_it_declares():
    assert ValueStateDescriptor("n", Types.LONG()).declaration == "value state of Long"
    assert ListStateDescriptor("n").declaration == "list state of any value"
    assert MapStateDescriptor("n", Types.STRING(), Types.LONG()).declaration == (
        "map state of String to Long"
    )
    assert ReducingStateDescriptor("n", max, Types.INT()).declaration == "reducing state of Integer"
    assert AggregatingStateDescriptor("n", Total()).declaration == "aggregating state of any value"


def test_descriptors_keep_the_users_function():
    largest, total = Largest(), Total()
    assert ReducingStateDescriptor("n", largest).get_reduce_function() is largest
    assert ReducingStateDescriptor("n", largest).reduce(1, 2) == 2
    assert AggregatingStateDescriptor("n", total).get_agg_function() is total


@pytest.mark.parametrize("name", ["", None, 3])
def test_a_state_without_a_name_is_refused(name):
    with pytest.raises(ConfigError, match="give a non-empty text"):
        ValueStateDescriptor(name)


def test_functions_of_the_wrong_kind_are_refused():
    with pytest.raises(TypeError, match="expected a ReduceFunction"):
        ReducingStateDescriptor("n", 3)
    with pytest.raises(TypeError, match="expected an AggregateFunction"):
        AggregatingStateDescriptor("n", max)


@pytest.mark.parametrize("ttl", [timedelta(seconds=5), Time.seconds(5), 5000, "5 s"])
def test_a_time_to_live_may_be_written_in_several_ways(ttl):
    descriptor = ValueStateDescriptor("n", Types.LONG())
    descriptor.enable_time_to_live(ttl)
    assert descriptor.ttl_config == StateTtlConfig(timedelta(seconds=5))
    assert descriptor.declaration == "value state of Long, with a time to live"


def test_the_builder_collects_flinks_settings():
    config = (
        StateTtlConfig.new_builder(Time.hours(1))
        .set_ttl(timedelta(minutes=1))
        .update_ttl_on_read_and_write()
        .return_expired_if_not_cleaned_up()
        .use_processing_time()
        .cleanup_full_snapshot()
        .cleanup_incrementally(10, True)
        .cleanup_in_rocksdb_compact_filter(50)
        .disable_cleanup_in_background()
        .build()
    )
    assert config.get_ttl() == timedelta(minutes=1)
    assert config.get_update_type() is StateTtlConfig.UpdateType.OnReadAndWrite
    assert (
        config.get_state_visibility() is StateTtlConfig.StateVisibility.ReturnExpiredIfNotCleanedUp
    )
    assert (
        config.get_ttl_time_characteristic() is StateTtlConfig.TtlTimeCharacteristic.ProcessingTime
    )
    cleanup = config.get_cleanup_strategies()
    assert cleanup.in_full_snapshot()
    assert not cleanup.is_cleanup_in_background()
    assert cleanup.get_incremental_cleanup_strategy().get_cleanup_size() == 10
    assert cleanup.get_incremental_cleanup_strategy().run_cleanup_for_every_record()
    rocksdb = cleanup.get_rocksdb_compact_filter_cleanup_strategy()
    assert rocksdb.get_query_time_after_num_entries() == 50
    assert rocksdb.get_periodic_compaction_time() == timedelta(days=30)


def test_cleanup_runs_in_the_background_unless_it_is_disabled():
    default = StateTtlConfig(timedelta(1)).get_cleanup_strategies()
    assert default.get_incremental_cleanup_strategy().get_cleanup_size() == 5
    disabled = StateTtlConfig.new_builder(5).disable_cleanup_in_background().build()
    assert disabled.get_cleanup_strategies().get_incremental_cleanup_strategy() is None
    assert disabled.get_cleanup_strategies().get_rocksdb_compact_filter_cleanup_strategy() is None


def test_a_disabled_time_to_live_is_none():
    descriptor = ValueStateDescriptor("n")
    builder = StateTtlConfig.new_builder(5)
    descriptor.enable_time_to_live(
        builder.set_update_type(StateTtlConfig.UpdateType.Disabled).build()
    )
    assert descriptor.ttl_config is None


@pytest.mark.parametrize("ttl", [timedelta(0), timedelta(seconds=-1)])
def test_a_time_to_live_of_nothing_is_refused(ttl):
    with pytest.raises(ConfigError, match="at least one millisecond"):
        StateTtlConfig(ttl)


def test_descriptors_travel_pickled():
    descriptor = MapStateDescriptor("n", Types.STRING(), Types.LONG())
    descriptor.enable_time_to_live(timedelta(seconds=1))
    copy = pickle.loads(pickle.dumps(descriptor))
    assert (copy.name, copy.declaration, copy.ttl_config) == (
        "n",
        descriptor.declaration,
        descriptor.ttl_config,
    )
