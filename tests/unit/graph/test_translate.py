import pytest

from tests.programs import apply, collected, graph_of, keyed, mapped, read
from tidegate.connectors.collection import CollectionSource
from tidegate.core.errors import GraphError
from tidegate.graph.job_graph import ChainLink
from tidegate.graph.logical import ChainingStrategy, Upstream
from tidegate.graph.partitioning import ByKeyGroup, Forward, Rebalance
from tidegate.operators.endpoints.operators import SourceOperator
from tidegate.operators.functions import CoFlatMapFunction
from tidegate.operators.stateless import MapOperator
from tidegate.operators.two_inputs.co import CoFlatMapOperator
from tidegate.types.typeinfo import Types


def names(job):
    return [vertex.name for vertex in job.vertices]


def wires(job):
    return [(edge.source, edge.source_operator, edge.target) for edge in job.edges]


def test_neighbours_without_an_exchange_share_a_vertex():
    job = graph_of(collected(mapped(abs, read([1]))))
    assert names(job) == ["source -> map -> results"]
    assert [chained.parent for chained in job.vertices[0].chain] == [
        None,
        ChainLink(0),
        ChainLink(1),
    ]
    assert job.edges == ()


def test_without_chaining_every_operator_has_its_own_vertex():
    job = graph_of(collected(mapped(abs, read([1]))), chaining=False)
    assert names(job) == ["source", "map", "results"]
    assert all(edge.partitioning == Forward() for edge in job.edges)
    assert [vertex.level for vertex in job.vertices] == [0, 0, 0]


def test_key_by_begins_a_new_vertex_one_level_up():
    job = graph_of(collected(mapped(abs, keyed(abs, read([1])), is_keyed=True)), parallelism=2)
    assert names(job) == ["source", "map -> results"]
    assert [vertex.level for vertex in job.vertices] == [0, 1]
    assert isinstance(job.edges[0].partitioning, ByKeyGroup)
    assert job.vertices[1].chain[0].is_keyed


def test_a_stream_that_two_read_is_one_vertex_with_two_branches():
    source = read([1])
    job = graph_of(collected(mapped(abs, source), "a"), collected(mapped(str, source), "b"))
    (vertex,) = job.vertices
    assert vertex.name == "source -> map -> a -> map -> b"
    parents = [c.parent and c.parent.operator_index for c in vertex.chain]
    assert parents == [None, 0, 1, 0, 3]


def test_an_edge_says_which_operator_of_the_chain_it_leaves():
    source = read([1])
    doubled = mapped(abs, source)
    behind = mapped(str, Upstream(source, Rebalance()), name="behind")
    job = graph_of(collected(doubled, "near"), collected(behind, "far"))
    assert names(job) == ["source -> map -> near", "behind -> far"]
    assert wires(job) == [(0, 0, 1)]


def test_a_side_output_is_chained_or_travels_under_its_tag():
    source = read([1])
    near = collected(Upstream(source, None, "odd"), "near")
    far = collected(Upstream(source, Rebalance(), "odd"), "far")
    job = graph_of(near, far)
    assert job.vertices[0].chain[1].parent == ChainLink(0, "odd")
    assert [edge.side_tag for edge in job.edges] == ["odd"]


def test_a_union_is_several_edges_into_one_input():
    left, right = read([1], name="left"), read([2], name="right")
    job = graph_of(collected(apply(MapOperator(abs), left, right, name="union")))
    assert names(job) == ["left", "right", "union -> results"]
    assert [(edge.target, edge.input_index) for edge in job.edges] == [(2, 0), (2, 0)]
    assert len(job.pipelines) == 1


def test_a_union_with_itself_reads_the_stream_twice():
    source = read([1])
    job = graph_of(collected(apply(MapOperator(abs), source, source, name="union")))
    assert wires(job) == [(0, 0, 1), (0, 0, 1)]


def test_connected_streams_keep_their_inputs_apart():
    class Both(CoFlatMapFunction):
        def flat_map1(self, value):
            yield value

        flat_map2 = flat_map1

    left, right = read([1]), read([2])
    both = apply(CoFlatMapOperator(Both()), Upstream(left), Upstream(right, input_index=1))
    job = graph_of(collected(both))
    assert [edge.input_index for edge in job.edges] == [0, 1]


def test_a_diamond_is_joined_at_the_level_of_its_longer_arm():
    source = read([1])
    long = mapped(abs, Upstream(mapped(abs, Upstream(source, Rebalance())), Rebalance()))
    job = graph_of(collected(apply(MapOperator(abs), source, long, name="join")), parallelism=2)
    assert names(job) == ["source", "map", "map", "join -> results"]
    assert [vertex.level for vertex in job.vertices] == [0, 1, 2, 2]
    assert [
        isinstance(edge.partitioning, Forward) for edge in job.edges_into(job.vertices[3].id)
    ] == [True, True]


def test_parts_that_nothing_joins_are_pipelines_of_their_own():
    job = graph_of(collected(read([1]), "a"), collected(mapped(abs, keyed(abs, read([2]))), "b"))
    assert [vertex.pipeline for vertex in job.vertices] == [0, 1, 1]
    assert [pipeline.levels for pipeline in job.pipelines] == [1, 2]


def test_an_operator_without_parallelism_takes_the_environments():
    job = graph_of(collected(read([1], parallelism=1)), parallelism=3)
    assert [vertex.parallelism for vertex in job.vertices] == [1, 3]
    assert job.edges[0].partitioning == Rebalance()
    assert job.slots == 3


def test_max_parallelism_comes_from_operator_environment_or_parallelism():
    def limit(environment=None, **settings):
        return graph_of(collected(read([1], **settings)), max_parallelism=environment).vertices[0]

    assert limit().max_parallelism == 128
    assert limit(environment=16).max_parallelism == 16
    assert limit(environment=16, max_parallelism=8).max_parallelism == 8


def test_a_parallelism_above_the_limit_is_refused():
    with pytest.raises(GraphError, match="'source' has parallelism 4, above its max parallelism 2"):
        graph_of(collected(read([1], max_parallelism=2)), parallelism=4)


def test_a_program_without_sinks_is_refused():
    with pytest.raises(GraphError, match=r"no sink.*print\(\)"):
        graph_of()


def test_a_uid_names_one_operator():
    source = read([1], uid="same")
    with pytest.raises(GraphError, match="uid 'same' is used by both 'source' and 'map'"):
        graph_of(collected(mapped(abs, source, uid="same")))


def test_a_uid_fixes_the_identity_wherever_the_operator_stands():
    def identity(*before):
        stream = read([1])
        for function in before:
            stream = mapped(function, stream)
        job = graph_of(collected(mapped(abs, stream, name="kept", uid="mine")))
        chained = [c for vertex in job.vertices for c in vertex.chain]
        return next(c.operator_id for c in chained if c.name == "kept")

    assert identity() == identity(str, int)


def test_identities_without_uid_stay_while_the_program_does():
    def identities():
        job = graph_of(collected(mapped(abs, keyed(abs, read([1])))))
        return [c.operator_id for vertex in job.vertices for c in vertex.chain]

    assert identities() == identities()
    assert len(set(identities())) == 3


@pytest.mark.parametrize("names", [("map",), ("map", "map"), ("another", "map")])
def test_no_operator_without_uid_is_taken_for_one_of_another_graph(names):
    def identities(*stages):
        stream = read([1])
        for name in stages:
            stream = mapped(abs, stream, name=name)
        job = graph_of(collected(stream))
        return {c.operator_id for vertex in job.vertices for c in vertex.chain}

    assert identities().isdisjoint(identities(*names))


def test_operators_with_uids_beside_the_others_change_nothing_for_them():
    def identity(**settings):
        source = read([1])
        job = graph_of(collected(source, "kept"), collected(source, "more", **settings))
        chained = [c for vertex in job.vertices for c in vertex.chain]
        return next(c.operator_id for c in chained if c.name == "kept")

    alone = graph_of(collected(read([1]), "kept"))
    [kept] = [c.operator_id for c in alone.vertices[0].chain if c.name == "kept"]
    assert identity(uid="more") == kept
    assert identity() != kept


def test_a_source_becomes_an_operator_that_knows_its_format():
    job = graph_of(collected(read([1], type_info=Types.LONG())))
    head = job.vertices[0].chain[0].operator
    assert isinstance(head, SourceOperator)
    assert head.format.type_info == Types.LONG()
    assert isinstance(job.vertices[0].source, CollectionSource)
    assert job.pipelines[0].sources == (job.vertices[0],)


def test_an_edge_has_the_format_of_the_type_that_was_declared_for_it():
    source = read([1], type_info=Types.LONG(), side_types={"late": Types.STRING()})
    untyped = mapped(abs, source)
    job = graph_of(
        collected(Upstream(source, Rebalance()), "a"),
        collected(Upstream(source, Rebalance(), "late"), "b"),
        collected(Upstream(untyped, Rebalance()), "c"),
    )
    formats = [edge.format and str(edge.format.type_info) for edge in job.edges]
    assert formats == [str(Types.LONG()), str(Types.STRING()), None]


def test_a_new_chain_may_begin_after_an_operator_that_never_chains():
    alone = mapped(abs, read([1]), name="alone", chaining=ChainingStrategy.NEVER)
    job = graph_of(collected(mapped(str, alone, name="next")))
    assert names(job) == ["source", "alone", "next -> results"]
