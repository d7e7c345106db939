"""Which results may be emitted: in order or as they come, and never past a watermark."""

from hypothesis import given
from hypothesis import strategies as st

from tests.effort import examples
from tidegate.operators.async_io.results import Request, ResultsAsTheyCome, ResultsInOrder
from tidegate.stream.elements import Watermark


def held(results, *elements):
    """Requests for numbers, watermarks for the others."""
    made = [Request(e, None) if isinstance(e, int) else Watermark(int(e)) for e in elements]
    for element in made:
        results.add(element)
    return [element for element in made if isinstance(element, Request)]


def taken(results):
    return [e.value if isinstance(e, Request) else str(e.timestamp) for e in results.take()]


def test_in_order_a_result_waits_for_those_before_it():
    results = ResultsInOrder()
    first, second = held(results, 1, 2)
    results.done(second)
    assert taken(results) == []
    results.done(first)
    assert taken(results) == [1, 2]


def test_unordered_a_result_waits_for_nobody():
    results = ResultsAsTheyCome()
    first, second = held(results, 1, 2)
    results.done(second)
    assert taken(results) == [2]
    results.done(first)
    assert taken(results) == [1]


def test_unordered_no_result_passes_a_watermark_in_either_direction():
    results = ResultsAsTheyCome()
    one, two, three = held(results, 1, 2, "10", 3)
    results.done(three)
    results.done(two)
    assert taken(results) == [2]
    results.done(one)
    assert taken(results) == [1, "10", 3]


def test_what_is_in_flight_is_in_the_order_of_the_stream():
    for results in (ResultsInOrder(), ResultsAsTheyCome()):
        _, second, _ = held(results, 1, 2, "10", 3)
        results.done(second)
        stored = [e.value if isinstance(e, Request) else e for e in results.in_flight()]
        assert stored == [1, 2, Watermark(10), 3]


@given(st.data())
@examples(60)
def test_every_result_leaves_once_and_on_its_side_of_every_watermark(data):
    elements = data.draw(st.lists(st.sampled_from(["record", "watermark"]), max_size=20))
    named = [i if kind == "record" else str(i) for i, kind in enumerate(elements)]
    for results in (ResultsInOrder(), ResultsAsTheyCome()):
        requests = held(results, *named)
        left = []
        for request in data.draw(st.permutations(requests)):
            results.done(request)
            if data.draw(st.booleans()):
                left += taken(results)
        left += taken(results)
        assert sorted(map(int, left)) == list(range(len(named)))
        if isinstance(results, ResultsInOrder):
            assert left == named
        for mark in (name for name in named if isinstance(name, str)):
            assert set(left[: left.index(mark)]) == set(named[: int(mark)])
        assert len(results) == 0
