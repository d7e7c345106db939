from tests.played_jobs import played_job
from tidegate.protocol.plan import CheckpointPlan, plan_checkpoint
from tidegate.protocol.region import Region, RegionState

SOURCE, SINK, OTHER = 0, 1, 2
VERTICES = played_job([2, 1, 1], sources=[SOURCE, OTHER], pipelines=[0, 0, 1]).graph.vertices


def region(state=RegionState.RUNNING, attempt=1):
    found = Region(0, [0])
    found.state, found.attempt = state, attempt
    return found


def test_sources_are_triggered_and_everybody_acknowledges_under_its_attempt():
    plan = plan_checkpoint(VERTICES, {0: region(attempt=3), 1: region()})
    assert plan == CheckpointPlan(
        triggered=frozenset({0, 1}),
        awaited={(SOURCE, 0): 3, (SOURCE, 1): 3, (SINK, 0): 3, (OTHER, 0): 1},
        finished=frozenset(),
    )


def test_a_finished_pipeline_takes_no_part_and_is_recorded_as_finished():
    plan = plan_checkpoint(VERTICES, {0: region(RegionState.FINISHED), 1: region()})
    assert plan.triggered == {1}
    assert plan.awaited == {(OTHER, 0): 1}
    assert plan.finished == {(SOURCE, 0), (SOURCE, 1), (SINK, 0)}
