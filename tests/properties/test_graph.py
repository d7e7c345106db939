"""Invariants of the graph of every program."""

from hypothesis import given

from tests.effort import examples
from tests.programs import graph_of
from tests.properties.random_programs import every_transformation, random_programs
from tidegate.graph.chaining import resolve_partitioning
from tidegate.graph.logical import ChainingStrategy
from tidegate.graph.partitioning import Forward

programs = given(random_programs())
modest = examples(50)


def graph(program):
    return graph_of(
        *program.sinks.values(), parallelism=program.parallelism, chaining=program.chaining
    )


@programs
@modest
def test_an_exchange_leads_to_a_higher_level_and_a_forward_edge_never_to_a_lower(program):
    job = graph(program)
    for edge in job.edges:
        source, target = job.vertices[edge.source], job.vertices[edge.target]
        if isinstance(edge.partitioning, Forward):
            assert source.level <= target.level
            assert source.parallelism == target.parallelism
        else:
            assert source.level < target.level


@programs
@modest
def test_a_level_is_the_longest_way_from_a_source_in_exchanges(program):
    job = graph(program)
    for vertex in job.vertices:
        ways = [
            job.vertices[edge.source].level + (0 if isinstance(edge.partitioning, Forward) else 1)
            for edge in job.edges_into(vertex.id)
        ]
        assert vertex.level == max(ways, default=0)


@programs
@modest
def test_vertices_are_numbered_so_that_inputs_come_first(program):
    job = graph(program)
    assert [vertex.id for vertex in job.vertices] == list(range(len(job.vertices)))
    assert [edge.id for edge in job.edges] == list(range(len(job.edges)))
    assert all(edge.source < edge.target for edge in job.edges)


@programs
@modest
def test_every_transformation_is_in_the_graph_once(program):
    job = graph(program)
    operators = [chained for vertex in job.vertices for chained in vertex.chain]
    assert len(operators) == len(every_transformation(program.sinks.values()))
    assert len({chained.operator_id for chained in operators}) == len(operators)


@programs
@modest
def test_every_input_of_the_program_is_a_link_of_a_chain_or_an_edge(program):
    job = graph(program)
    links = sum(1 for v in job.vertices for chained in v.chain if chained.parent is not None)
    inputs = sum(len(t.inputs) for t in every_transformation(program.sinks.values()))
    assert links + len(job.edges) == inputs


@programs
@modest
def test_operators_share_a_vertex_exactly_where_flink_chains_them(program):
    job = graph(program)
    if not program.chaining:
        assert all(len(vertex.chain) == 1 for vertex in job.vertices)
        return
    chained = sum(1 for v in job.vertices for operator in v.chain if operator.parent is not None)
    allowed = 0
    for t in every_transformation(program.sinks.values()):
        if len(t.inputs) == 1 and t.chaining is ChainingStrategy.ALWAYS:
            (up,) = t.inputs
            widths = [x.parallelism or program.parallelism for x in (up.transformation, t)]
            allowed += (
                isinstance(resolve_partitioning(up, *widths), Forward)
                and up.transformation.chaining is not ChainingStrategy.NEVER
            )
    assert chained == allowed


@programs
@modest
def test_a_chain_is_a_tree_below_its_head(program):
    for vertex in graph(program).vertices:
        head, *others = vertex.chain
        assert head.parent is None
        for index, chained in enumerate(others, start=1):
            assert chained.parent is not None
            assert chained.parent.operator_index < index


@programs
@modest
def test_pipelines_are_the_parts_that_no_edge_joins(program):
    job = graph(program)
    for edge in job.edges:
        assert job.vertices[edge.source].pipeline == job.vertices[edge.target].pipeline
    for pipeline in job.pipelines:
        reached = {pipeline.vertices[0].id}
        grown = True
        while grown:
            grown = False
            for edge in job.edges:
                if len({edge.source, edge.target} & reached) == 1:
                    reached |= {edge.source, edge.target}
                    grown = True
        assert reached == {vertex.id for vertex in pipeline.vertices}


@programs
@modest
def test_the_same_program_gives_the_same_operator_ids(program):
    def ids(job):
        return [chained.operator_id for vertex in job.vertices for chained in vertex.chain]

    assert ids(graph(program)) == ids(graph(program))
