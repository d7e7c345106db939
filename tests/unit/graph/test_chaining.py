import pytest

from tests.programs import mapped, read
from tidegate.core.errors import GraphError
from tidegate.graph.chaining import joins_chain, resolve_partitioning
from tidegate.graph.logical import ChainingStrategy, Upstream
from tidegate.graph.partitioning import Broadcast, Forward, Global, Rebalance, Rescale, Shuffle


@pytest.fixture
def source():
    return read([1], name="numbers")


def test_an_edge_without_partitioning_is_forward_between_equals(source):
    assert resolve_partitioning(Upstream(source), 3, 3) == Forward()


def test_an_edge_without_partitioning_is_a_rebalance_between_others(source):
    assert resolve_partitioning(Upstream(source), 3, 2) == Rebalance()


def test_a_partitioning_that_the_user_chose_is_kept(source):
    for chosen in (Rebalance(), Rescale(), Shuffle(), Broadcast(), Global()):
        assert resolve_partitioning(Upstream(source, chosen), 2, 2) == chosen
    assert resolve_partitioning(Upstream(source, Forward()), 2, 2) == Forward()


def test_forward_between_different_parallelisms_is_refused(source):
    with pytest.raises(GraphError, match=r"after 'numbers'.*found 2 and 3: use rebalance"):
        resolve_partitioning(Upstream(source, Forward()), 2, 3)


@pytest.mark.parametrize(
    ("upstream", "downstream", "joins"),
    [
        (ChainingStrategy.ALWAYS, ChainingStrategy.ALWAYS, True),
        (ChainingStrategy.HEAD, ChainingStrategy.ALWAYS, True),
        (ChainingStrategy.ALWAYS, ChainingStrategy.HEAD, False),
        (ChainingStrategy.ALWAYS, ChainingStrategy.NEVER, False),
        (ChainingStrategy.NEVER, ChainingStrategy.ALWAYS, False),
    ],
)
def test_both_neighbours_have_a_say_in_chaining(upstream, downstream, joins):
    source = read([1], chaining=upstream)
    operator = mapped(abs, source, chaining=downstream)
    assert joins_chain(operator, source, Forward()) is joins


@pytest.mark.parametrize("partitioning", [Rebalance(), Rescale(), Broadcast(), Global()])
def test_no_chain_goes_through_an_exchange(source, partitioning):
    assert not joins_chain(mapped(abs, source), source, partitioning)
