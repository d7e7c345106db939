import pytest

from tidegate.common import Types
from tidegate.core.errors import GraphError, MissingField
from tidegate.datastream import KeyedStream, KeySelector, ProcessFunction
from tidegate.graph.partitioning import ByKeyGroup
from tidegate.testing.environments import mini_environment

PAIR = Types.TUPLE([Types.STRING(), Types.LONG()])
NAMED = Types.ROW_NAMED(["word", "n"], [Types.STRING(), Types.LONG()])


@pytest.fixture
def env():
    return mini_environment(parallelism=2)


@pytest.fixture
def keyed(env):
    return env.from_collection([("a", 1)], PAIR).key_by(lambda pair: pair[0])


def test_a_keyed_stream_is_partitioned_by_key_group(keyed):
    (upstream,) = keyed._upstreams
    assert isinstance(upstream.partitioning, ByKeyGroup)
    assert isinstance(keyed, KeyedStream)


@pytest.mark.parametrize(
    ("key", "columns"),
    [
        (lambda row: row.word, 0),
        (lambda row: row["n"], 1),
        (lambda row: (row.n, row.word), (1, 0)),
        ("n", 1),
        (0, 0),
        (("word", "n"), (0, 1)),
        (lambda row: row.word.upper(), None),
    ],
)
def test_keys_that_are_fields_of_a_typed_stream_are_found_by_column(env, key, columns):
    keyed = env.from_collection([], NAMED).key_by(key)
    assert keyed._upstreams[0].partitioning.key.columns == columns


def test_a_key_selector_may_be_an_object(env):
    class Word(KeySelector):
        def get_key(self, value):
            return value[0]

    keyed = env.from_collection([("a", 1)]).key_by(Word())
    assert keyed._upstreams[0].partitioning.key.function(("a", 1)) == "a"


def test_keys_that_cannot_be_found_are_refused(env):
    rows = env.from_collection([], NAMED)
    with pytest.raises(MissingField, match="no field 'city'"):
        rows.key_by("city")
    with pytest.raises(TypeError, match="expected a KeySelector or a function"):
        rows.key_by(3.5)


@pytest.mark.parametrize(
    "call", ["rebalance", "rescale", "shuffle", "broadcast", "forward", "global_"]
)
def test_the_partitioning_of_a_keyed_stream_stays(keyed, call):
    with pytest.raises(GraphError, match="a KeyedStream is partitioned by its key"):
        getattr(keyed, call)()


def test_a_custom_partitioning_of_a_keyed_stream_is_refused(keyed):
    with pytest.raises(GraphError, match="a KeyedStream is partitioned by its key"):
        keyed.partition_custom(lambda key, n: 0, lambda pair: pair[0])


@pytest.mark.parametrize(
    ("call", "arguments"),
    [
        ("get_name", ()),
        ("name", ("x",)),
        ("uid", ("x",)),
        ("set_description", ("x",)),
        ("set_parallelism", (2,)),
        ("set_max_parallelism", (2,)),
        ("force_non_parallel", ()),
        ("set_buffer_timeout", (10,)),
        ("start_new_chain", ()),
        ("disable_chaining", ()),
        ("slot_sharing_group", ("x",)),
    ],
)
def test_a_keyed_stream_is_no_operator_to_set_something_on(keyed, call, arguments):
    with pytest.raises(GraphError, match=rf"{call}\(\) is not possible on a KeyedStream"):
        getattr(keyed, call)(*arguments)


@pytest.mark.parametrize(
    ("build", "name"),
    [
        (lambda s: s.map(str), "Map"),
        (lambda s: s.flat_map(list), "FlatMap"),
        (lambda s: s.filter(bool), "Filter"),
        (lambda s: s.reduce(lambda a, b: a), "Reduce"),
        (lambda s: s.sum(1), "Sum"),
        (lambda s: s.min(1), "Min"),
        (lambda s: s.max(1), "Max"),
        (lambda s: s.min_by(1), "MinBy"),
        (lambda s: s.max_by(1), "MaxBy"),
        (lambda s: s.count(), "Count"),
    ],
)
def test_operators_on_a_keyed_stream_are_keyed_and_named(keyed, build, name):
    stream = build(keyed)
    (upstream,) = stream._upstreams
    assert stream.get_name() == name
    assert upstream.transformation.is_keyed
    assert not isinstance(stream, KeyedStream)


@pytest.mark.parametrize("call", ["sum", "min", "max", "min_by", "max_by"])
def test_a_field_that_is_not_there_is_refused_before_the_job_starts(keyed, call):
    with pytest.raises(MissingField, match="f0, f1"):
        getattr(keyed, call)(2)
    with pytest.raises(MissingField, match="f0, f1"):
        getattr(keyed, call)("city")


def test_a_keyed_stream_takes_keyed_process_functions_only(keyed):
    class Plain(ProcessFunction):
        def process_element(self, value, ctx):
            yield value

    with pytest.raises(TypeError, match="KeyedProcessFunction"):
        keyed.process(Plain())


def test_a_keyed_stream_can_be_keyed_again(keyed):
    again = keyed.key_by(lambda pair: pair[1])
    assert again._upstreams[0].partitioning.key.columns == 1
    assert again._upstreams[0].transformation is keyed._upstreams[0].transformation
