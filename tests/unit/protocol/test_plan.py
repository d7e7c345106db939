from tidegate.protocol.plan import (
    CheckpointPlan,
    NotNow,
    PipelineFacts,
    PipelineProgress,
    VertexFacts,
    plan_checkpoint,
)

SOURCE = VertexFacts(0, 0, 2, is_source=True)
SINK = VertexFacts(1, 0, 1, is_source=False)
OTHER = VertexFacts(2, 1, 1, is_source=True)


def running(attempt=1):
    return PipelineFacts(PipelineProgress.RUNNING, attempt)


def test_sources_are_triggered_and_everybody_acknowledges_under_its_attempt():
    plan = plan_checkpoint([SOURCE, SINK, OTHER], {0: running(3), 1: running(1)})
    assert plan == CheckpointPlan(
        triggered=frozenset({(0, 0), (0, 1), (2, 0)}),
        awaited={(0, 0): 3, (0, 1): 3, (1, 0): 3, (2, 0): 1},
        finished=frozenset(),
    )


def test_a_finished_pipeline_takes_no_part_and_is_recorded_as_finished():
    finished = PipelineFacts(PipelineProgress.FINISHED, 1)
    plan = plan_checkpoint([SOURCE, SINK, OTHER], {0: finished, 1: running()})
    assert plan.triggered == {(2, 0)}
    assert plan.awaited == {(2, 0): 1}
    assert plan.finished == {(0, 0), (0, 1), (1, 0)}


def test_no_checkpoint_while_a_pipeline_is_being_restarted():
    restarting = PipelineFacts(PipelineProgress.UNAVAILABLE, 1)
    plan = plan_checkpoint([SOURCE, SINK, OTHER], {0: running(), 1: restarting})
    assert plan == NotNow("pipeline 1 is not running")


def test_no_checkpoint_when_all_have_finished():
    finished = PipelineFacts(PipelineProgress.FINISHED, 1)
    assert plan_checkpoint([OTHER], {1: finished}) == NotNow("all pipelines have finished")
