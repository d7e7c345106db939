import pytest

from tidegate.common import Types
from tidegate.core.errors import GraphError
from tidegate.datastream import (
    BroadcastConnectedStream,
    BroadcastProcessFunction,
    BroadcastStream,
    KeyedBroadcastProcessFunction,
)
from tidegate.datastream.state import ListStateDescriptor, MapStateDescriptor
from tidegate.graph.partitioning import Broadcast, ByKeyGroup
from tidegate.operators.two_inputs.broadcast import (
    BroadcastProcessOperator,
    KeyedBroadcastProcessOperator,
)
from tidegate.testing.environments import mini_environment

RULES = MapStateDescriptor("rules", Types.STRING(), Types.LONG())
PAIR = Types.TUPLE([Types.STRING(), Types.LONG()])


class Match(BroadcastProcessFunction):
    def process_element(self, value, ctx):
        yield value

    process_broadcast_element = process_element


class KeyedMatch(KeyedBroadcastProcessFunction):
    def process_element(self, value, ctx):
        yield value

    process_broadcast_element = process_element


@pytest.fixture
def env():
    return mini_environment()


@pytest.fixture
def pairs(env):
    return env.from_collection([("a", 1)], PAIR)


@pytest.fixture
def rules(env):
    return env.from_collection([("a", 2)], PAIR)


def operator_of(stream):
    return stream._upstreams[0].transformation


def test_a_stream_without_keys_is_processed_beside_a_broadcast_one(pairs, rules):
    connected = pairs.connect(rules.broadcast(RULES))
    assert isinstance(connected, BroadcastConnectedStream)
    found = operator_of(connected.process(Match(), PAIR))
    assert found.name == "Co-Process-Broadcast"
    assert isinstance(found.operator, BroadcastProcessOperator)
    assert [(up.input_index, up.partitioning) for up in found.inputs] == [
        (0, None),
        (1, Broadcast()),
    ]
    assert not found.is_keyed
    assert found.output_type == PAIR


def test_a_keyed_stream_is_processed_beside_a_broadcast_one(pairs, rules):
    connected = pairs.key_by(lambda pair: pair[0]).connect(rules.broadcast(RULES))
    found = operator_of(connected.process(KeyedMatch()))
    assert found.name == "Keyed-Co-Process-Broadcast"
    assert isinstance(found.operator, KeyedBroadcastProcessOperator)
    assert isinstance(found.inputs[0].partitioning, ByKeyGroup)
    assert found.inputs[1].partitioning == Broadcast()
    assert found.is_keyed


def test_the_function_fits_the_stream(pairs, rules):
    broadcast = rules.broadcast(RULES)
    with pytest.raises(TypeError, match=r"has no key, .* needs a BroadcastProcessFunction"):
        pairs.connect(broadcast).process(KeyedMatch())
    with pytest.raises(TypeError, match=r"is keyed, .* needs a KeyedBroadcastProcessFunction"):
        pairs.key_by(lambda pair: pair[0]).connect(broadcast).process(Match())


def test_several_states_may_be_declared(rules):
    other = MapStateDescriptor("other")
    stream = rules.broadcast(RULES, other)
    assert isinstance(stream, BroadcastStream)
    assert stream.broadcast_state_descriptors == (RULES, other)


def test_states_that_cannot_be_broadcast_are_refused(rules):
    with pytest.raises(TypeError, match="broadcast state is a map"):
        rules.broadcast(ListStateDescriptor("list"))
    with pytest.raises(GraphError, match="two broadcast states are named 'rules'"):
        rules.broadcast(RULES, RULES)
    mortal = MapStateDescriptor("mortal")
    mortal.enable_time_to_live("1 h")
    with pytest.raises(GraphError, match="'mortal' cannot have a time to live"):
        rules.broadcast(mortal)


def test_both_streams_come_from_one_environment(pairs):
    other = mini_environment().from_collection([1]).broadcast(RULES)
    with pytest.raises(GraphError, match="same StreamExecutionEnvironment"):
        pairs.connect(other)


def test_a_keyed_stream_cannot_be_broadcast(pairs):
    with pytest.raises(GraphError, match="partitioned by its key, so broadcast is not possible"):
        pairs.key_by(lambda pair: pair[0]).broadcast(RULES)
