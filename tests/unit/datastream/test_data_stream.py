import ast
import inspect

import pytest

import tidegate
from tidegate.common import Types
from tidegate.core.errors import ConfigError, GraphError, MissingField
from tidegate.datastream import (
    FilterFunction,
    MapFunction,
    OutputTag,
    ProcessFunction,
    SlotSharingGroup,
    data_stream,
    environment,
)
from tidegate.graph.logical import ChainingStrategy
from tidegate.graph.partitioning import (
    Broadcast,
    Custom,
    Forward,
    Global,
    Rebalance,
    Rescale,
    Shuffle,
)
from tidegate.testing.environments import mini_environment

PAIR = Types.TUPLE([Types.STRING(), Types.LONG()])


@pytest.fixture
def env():
    return mini_environment(parallelism=2)


@pytest.fixture
def pairs(env):
    return env.from_collection([("a", 1)], PAIR)


class Keep(ProcessFunction):
    def process_element(self, value, ctx):
        yield value


def transformation(stream):
    (upstream,) = stream._upstreams
    return upstream.transformation


@pytest.mark.parametrize(
    ("build", "name"),
    [
        (lambda s: s.map(str), "Map"),
        (lambda s: s.flat_map(list), "FlatMap"),
        (lambda s: s.filter(bool), "Filter"),
        (lambda s: s.process(Keep()), "PROCESS"),
        (lambda s: s.project(0), "Projection"),
        (lambda s: s.map_batches(lambda b: b), "MapBatches"),
    ],
)
def test_an_operator_is_named_as_in_pyflink_until_it_is_named(pairs, build, name):
    stream = build(pairs)
    assert stream.get_name() == name
    assert stream.name("mine").get_name() == "mine"


def test_settings_of_an_operator_chain_and_land_on_its_transformation(pairs):
    stream = (
        pairs.map(str)
        .name("n")
        .uid("u")
        .set_parallelism(3)
        .set_max_parallelism(12)
        .set_description("d")
        .slot_sharing_group("default")
        .slot_sharing_group(SlotSharingGroup.builder("big").set_cpu_cores(2.0).build())
        .set_buffer_timeout(-1)
        .start_new_chain()
    )
    made = transformation(stream)
    assert (made.name, made.uid, made.description) == ("n", "u", "d")
    assert (made.parallelism, made.max_parallelism) == (3, 12)
    assert made.chaining is ChainingStrategy.HEAD
    assert transformation(stream.disable_chaining()).chaining is ChainingStrategy.NEVER


def test_an_operator_that_cannot_run_in_parallel_stays_alone(env, pairs):
    with pytest.raises(ConfigError, match="'Collection Source' cannot run in parallel"):
        pairs.set_parallelism(2)
    stream = pairs.map(str).force_non_parallel().set_parallelism(1)
    with pytest.raises(ConfigError, match="'Map' cannot run in parallel"):
        stream.set_parallelism(4)


@pytest.mark.parametrize("value", [0, -3, True, "x", 1 << 16])
def test_a_parallelism_of_an_operator_is_checked(pairs, value):
    with pytest.raises(ConfigError, match="give a whole number from 1 to 32768"):
        pairs.map(str).set_parallelism(value)


def test_settings_of_united_partitioned_and_side_streams_are_refused(pairs):
    tag = OutputTag("t")
    for stream in (
        pairs.union(pairs),
        pairs.rebalance(),
        pairs.process(Keep()).get_side_output(tag),
    ):
        with pytest.raises(GraphError, match=r"name\(\) configures one operator"):
            stream.name("x")


@pytest.mark.parametrize(
    ("call", "partitioning"),
    [
        ("rebalance", Rebalance()),
        ("rescale", Rescale()),
        ("shuffle", Shuffle()),
        ("broadcast", Broadcast()),
        ("forward", Forward()),
        ("global_", Global()),
    ],
)
def test_the_partitioning_nearest_to_the_reader_wins(pairs, call, partitioning):
    stream = getattr(pairs.shuffle(), call)()
    assert stream._upstreams[0].partitioning == partitioning
    assert transformation(stream.map(str)).inputs == stream._upstreams


def test_a_custom_partitioning_has_a_key_and_a_partitioner(pairs):
    stream = pairs.partition_custom(lambda key, n: len(key) % n, lambda pair: pair[0])
    partitioning = stream._upstreams[0].partitioning
    assert isinstance(partitioning, Custom)
    assert partitioning.partitioner("abc", 2) == 1
    assert partitioning.key.columns == 0
    with pytest.raises(TypeError, match="expected a Partitioner or a function"):
        pairs.partition_custom("x", lambda pair: pair[0])


def test_types_are_declared_kept_and_reported(env, pairs):
    assert pairs.get_type() == PAIR
    assert pairs.filter(bool).get_type() == PAIR
    assert pairs.map(str).get_type() == Types.PICKLED_BYTE_ARRAY()
    assert pairs.map(str, Types.STRING()).get_type() == Types.STRING()
    assert pairs.map(str, str).get_type() == Types.STRING()
    assert pairs.map(list, [Types.STRING(), Types.LONG()]).get_type() == Types.ROW(
        [Types.STRING(), Types.LONG()]
    )
    assert pairs.get_execution_environment() is env
    with pytest.raises(TypeError, match="is not a type of records"):
        pairs.map(str, "string")


def test_a_projection_takes_fields_by_position_or_name_and_keeps_their_types(env, pairs):
    assert pairs.project(1, 0).get_type() == Types.TUPLE([Types.LONG(), Types.STRING()])
    rows = env.from_collection([], Types.ROW_NAMED(["w", "n"], [Types.STRING(), Types.LONG()]))
    chosen = rows.project("n").get_type()
    assert chosen.get_field_names() == ["n"]
    with pytest.raises(MissingField, match=r"project\(\): no field 2; the fields are: f0, f1"):
        pairs.project(2)
    with pytest.raises(GraphError, match="only streams of tuples or rows can be projected"):
        pairs.map(str).project(0)


def test_a_function_that_is_none_is_refused_where_it_is_given(pairs):
    for wrong in (
        lambda: pairs.map(5),
        lambda: pairs.filter("x"),
        lambda: pairs.flat_map(None),
        lambda: pairs.process(lambda value: value),
        lambda: pairs.add_sink(7),
        lambda: pairs.sink_to(print),
        lambda: pairs.map(MapFunction),
        lambda: pairs.connect("x"),
    ):
        with pytest.raises(TypeError):
            wrong()

    class Wrong(FilterFunction):
        def filter(self, value):
            return True

    with pytest.raises(TypeError, match="expected a MapFunction or a function, got Wrong"):
        pairs.map(Wrong())


def test_streams_of_different_types_cannot_be_united(env, pairs):
    with pytest.raises(GraphError, match="cannot unite streams of different types"):
        pairs.union(env.from_collection(["a"], Types.STRING()))


def test_streams_of_different_environments_cannot_meet(pairs):
    foreign = mini_environment().from_collection([("a", 1)], PAIR)
    with pytest.raises(GraphError, match="must come from the same StreamExecutionEnvironment"):
        pairs.union(foreign)
    with pytest.raises(GraphError, match="must come from the same StreamExecutionEnvironment"):
        pairs.connect(foreign)


def test_a_side_output_belongs_to_a_process_function_and_has_one_type(pairs):
    processed = pairs.process(Keep())
    side = processed.get_side_output(OutputTag("late", Types.STRING()))
    assert side.get_type() == Types.STRING()
    assert side._upstreams[0].side_tag == "late"
    with pytest.raises(GraphError, match="side output 'late' of 'PROCESS' is read as"):
        processed.get_side_output(OutputTag("late", Types.LONG()))
    with pytest.raises(GraphError, match="'Map' has no side outputs"):
        pairs.map(str).get_side_output(OutputTag("late"))


def test_map_batches_needs_columns(env):
    with pytest.raises(GraphError, match=r"map_batches\(\) needs columns"):
        env.from_collection([1]).map_batches(lambda batch: batch)


def test_windows_by_key_need_a_key(pairs):
    for name in ("window", "count_window"):
        with pytest.raises(AttributeError, match=r"key_by\(\) before it, or window_all"):
            getattr(pairs, name)


def test_a_stream_shows_its_type_and_where_it_comes_from(pairs):
    assert repr(pairs.map(str)) == "<DataStream of PickledByteArrayTypeInfo from 'Map'>"
    assert repr(pairs.print().name("Out")) == "<DataStreamSink 'Out'>"


@pytest.mark.parametrize("module", [tidegate, data_stream, environment])
def test_type_checkers_see_no_attribute_that_is_made_up(module):
    """A `__getattr__` that they see makes them accept every misspelled method."""
    tree = ast.parse(inspect.getsource(module))
    seen = [
        each
        for owner in [tree, *[each for each in tree.body if isinstance(each, ast.ClassDef)]]
        for each in owner.body
        if isinstance(each, ast.FunctionDef) and each.name == "__getattr__"
    ]
    assert seen == []
    assert "__getattr__" in vars(module) or any(
        "__getattr__" in vars(each) for each in vars(module).values() if inspect.isclass(each)
    )
