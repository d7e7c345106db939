"""How subtasks spend their time, from samples."""

from types import SimpleNamespace

import pytest

from tidegate.driver.progress import SubtaskProgress, VertexProgress
from tidegate.protocol.region import RegionState
from tidegate.web.live.rates import Counts, RateMeter

SOURCE, SINK = 0, 1


def sample(at, source, sink, *, attempt=1, has_more=True):
    """Both vertices have one subtask; given is how long each has worked."""
    worked = {SOURCE: source, SINK: sink}
    vertices = {
        id: VertexProgress(
            vertex=SimpleNamespace(id=id, level=id, pipeline=0),
            state=RegionState.RUNNING,
            attempt=attempt,
            step_seconds=None,
            subtasks=(SubtaskProgress(worked=worked[id], has_more=has_more and id == SOURCE),),
        )
        for id in worked
    }
    return Counts(at=at, records_in=0, records_out=0, vertices=vertices, traffic={})


def spent(*samples):
    """Back-pressured and idle seconds of source and sink."""
    meter = RateMeter()
    for each in samples:
        meter.take(each)
    found = meter.rates().spent
    return [(each.back_pressured, each.idle) for id in (SOURCE, SINK) for each in found[id]]


def test_a_source_that_waits_for_a_slow_sink_is_back_pressured_and_the_sink_is_idle():
    samples = [sample(10, 0, 0), sample(11, 0.1, 0.7), sample(12, 0.2, 1.4)]
    assert spent(*samples) == [pytest.approx((1.4, 0.4)), pytest.approx((0.0, 0.6))]


def test_a_source_without_input_is_idle():
    samples = [sample(at, 0.1, 0.2, has_more=False) for at in (10, 11, 12)]
    assert spent(*samples) == [pytest.approx((0.0, 1.9)), pytest.approx((0.0, 1.8))]


def test_a_step_that_takes_several_samples_is_neither_lost_nor_counted_twice():
    waiting = [sample(10 + second, 0.5, 0) for second in range(8)]
    assert spent(*waiting, sample(18, 0.5, 7)) == [
        pytest.approx((7.0, 0.5)),
        pytest.approx((0.0, 1.0)),
    ]


def test_a_new_attempt_starts_at_zero():
    samples = [sample(10, 0, 0), sample(14, 1, 3), sample(15, 0.2, 0.5, attempt=2)]
    assert spent(*samples) == [pytest.approx((0.5, 0.3)), pytest.approx((0.0, 0.5))]
