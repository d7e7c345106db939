import pytest

from tests.programs import collected, graph_of, keyed, mapped, read


@pytest.fixture
def job():
    wide = mapped(abs, keyed(abs, read([1], parallelism=1)), parallelism=4)
    return graph_of(collected(wide, parallelism=2), collected(read([1], name="other"), "more"))


def test_the_widest_vertex_decides_how_many_slots_there_are(job):
    assert job.slots == 4
    assert [pipeline.slots for pipeline in job.pipelines] == [4, 1]


def test_edges_are_found_from_both_ends(job):
    assert [edge.target for edge in job.edges_from(0)] == [1]
    assert [edge.source for edge in job.edges_into(2)] == [1]
    assert job.edges_into(0) == ()
