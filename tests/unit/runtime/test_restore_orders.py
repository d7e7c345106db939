from dataclasses import replace

import pytest

from tests.programs import collected, graph_of, keyed, read
from tidegate.checkpoint.metadata import CheckpointMetadata, OperatorRecord
from tidegate.runtime.jobmanager.checkpoint_home import RestorePoint
from tidegate.runtime.jobmanager.restore_orders import (
    restore_orders,
    restored_enumerators,
    with_restored_max_parallelism,
)
from tidegate.state.key_groups import KeyGroupRange, default_max_parallelism
from tidegate.state.snapshot import KeyedStateHandle, OperatorHandle
from tidegate.stream.elements import BarrierKind


def checkpoint_of(graph, *, parallelism, max_parallelism, enumerator=None):
    """A checkpoint in which every operator has keyed state."""
    records = {}
    for chained in (chained for vertex in graph.vertices for chained in vertex.chain):
        handle = OperatorHandle(
            operator_id=chained.operator_id,
            keyed=KeyedStateHandle(
                metadata=(),
                max_parallelism=max_parallelism,
                key_groups=KeyGroupRange(0, max_parallelism),
            ),
            source_splits=(b"split",),
        )
        records[chained.operator_id] = OperatorRecord(
            operator_id=chained.operator_id,
            uid=None,
            name=chained.name,
            parallelism=parallelism,
            max_parallelism=max_parallelism,
            subtasks=dict.fromkeys(range(parallelism), handle),
            enumerator=enumerator,
        )
    return CheckpointMetadata(
        job_id="job",
        job_name="job",
        checkpoint_id=7,
        kind=BarrierKind.CHECKPOINT,
        triggered_at=0.0,
        completed_at=1.0,
        operators=records,
    )


def job(parallelism=2, **settings):
    return graph_of(collected(keyed(abs, read(range(4)))), parallelism=parallelism, **settings)


def test_a_max_parallelism_that_nobody_chose_is_that_of_the_state():
    graph = job(parallelism=100)
    assert {v.max_parallelism for v in graph.vertices} == {default_max_parallelism(100)} == {256}
    stored = checkpoint_of(graph, parallelism=2, max_parallelism=128)
    adapted = with_restored_max_parallelism(graph, stored)
    assert {vertex.max_parallelism for vertex in adapted.vertices} == {128}


@pytest.mark.parametrize(("chosen", "stored", "used"), [(True, 64, 128), (False, 1, 128)])
def test_what_the_user_chose_and_what_would_not_do_stays(chosen, stored, used):
    graph = job()
    vertices = [replace(v, is_max_parallelism_chosen=chosen) for v in graph.vertices]
    graph = replace(graph, vertices=tuple(vertices))
    metadata = checkpoint_of(graph, parallelism=1, max_parallelism=stored)
    adapted = with_restored_max_parallelism(graph, metadata)
    assert {vertex.max_parallelism for vertex in adapted.vertices} == {used}


def test_every_slot_is_told_what_its_subtasks_take_over():
    graph = job()
    metadata = checkpoint_of(graph, parallelism=2, max_parallelism=128, enumerator=b"known")
    point = RestorePoint(metadata, None)
    orders = restore_orders(graph.pipelines[0], point)
    assert orders.keys() == {0, 1}
    assert all(order.subtasks.keys() == {v.id for v in graph.vertices} for order in orders.values())
    assert restored_enumerators(graph.pipelines[0], point) == {0: b"known"}
