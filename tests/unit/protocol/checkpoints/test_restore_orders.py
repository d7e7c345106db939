from dataclasses import replace

import pytest

from tests.programs import collected, graph_of, keyed, mapped, read
from tidegate.checkpoint.checkpoint import Checkpoint
from tidegate.checkpoint.metadata import CheckpointMetadata, OperatorRecord
from tidegate.core.errors import InternalError, StateMisuse
from tidegate.driver.upgrade_plan import plan_upgrade
from tidegate.graph.exchanges import exchanges_of
from tidegate.protocol.checkpoints.restore_orders import (
    ended_sources,
    restore_orders,
    restored_enumerators,
    with_restored_max_parallelism,
)
from tidegate.protocol.restore import OperatorRestore, SubtaskRestore, check_in_flight
from tidegate.state.backend import StateMetadata
from tidegate.state.keys.key_groups import KeyGroupRange, default_max_parallelism
from tidegate.state.operator_state import OperatorStateFacts, Redistribution
from tidegate.state.pointers import (
    ChannelHandle,
    InlineBytes,
    KeyedStateHandle,
    OperatorHandle,
)
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


def ended_for(metadata, *subtasks):
    """The same checkpoint, in which these subtasks of each operator had come to their end."""
    records = {
        key: replace(
            record,
            finished=frozenset(subtasks),
            ended_inputs=dict.fromkeys(subtasks, frozenset({0})),
        )
        for key, record in metadata.operators.items()
    }
    return replace(metadata, operators=records)


def ended_for_second(metadata):
    return ended_for(metadata, 1)


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


def test_every_slot_gets_what_its_subtasks_take_over():
    graph = job()
    metadata = checkpoint_of(graph, parallelism=2, max_parallelism=128, enumerator=b"known")
    point = Checkpoint(metadata, None)
    orders = restore_orders(graph.pipelines[0], point)
    assert orders.keys() == {0, 1}
    assert all(order.subtasks.keys() == {v.id for v in graph.vertices} for order in orders.values())
    assert restored_enumerators(graph.pipelines[0], point) == {0: b"known"}


@pytest.mark.parametrize("parallelism", [2, 3])
@pytest.mark.parametrize(("subtasks", "ended"), [((), set()), ((1,), set()), ((0, 1), {0})])
def test_a_source_has_ended_when_all_its_subtasks_have(subtasks, ended, parallelism):
    graph = job(parallelism)
    metadata = checkpoint_of(graph, parallelism=2, max_parallelism=128)
    point = Checkpoint(ended_for(metadata, *subtasks), None)
    (pipeline,) = graph.pipelines
    assert ended_sources(pipeline, restore_orders(pipeline, point)) == ended


def test_no_source_has_ended_without_a_checkpoint():
    assert ended_sources(job().pipelines[0], {}) == set()


@pytest.mark.parametrize("change", ["none", "parallelism", "operator"])
def test_what_had_ended_for_one_subtask_has_ended_if_the_job_is_the_same(change):
    graph = job()
    *_, sink = graph.vertices
    metadata = ended_for_second(checkpoint_of(graph, parallelism=2, max_parallelism=128))
    operators = dict(metadata.operators)
    source = graph.vertices[0].chain[0].operator_id
    if change == "parallelism":
        operators[source] = replace(operators[source], parallelism=1)
    if change == "operator":
        del operators[source]
    point = Checkpoint(replace(metadata, operators=operators), None)
    second = restore_orders(graph.pipelines[0], point)[1].subtasks[sink.id]
    assert second.is_finished == bool(second.ended_inputs) == (change == "none")


@pytest.mark.parametrize("change", ["parallelism", "operator"])
def test_what_had_ended_for_all_has_ended_unless_there_are_new_operators(change):
    graph = job()
    *_, sink = graph.vertices
    metadata = checkpoint_of(graph, parallelism=2, max_parallelism=128)
    operators = {
        key: replace(
            record, finished=frozenset({0, 1}), ended_inputs=dict.fromkeys((0, 1), frozenset({0}))
        )
        for key, record in metadata.operators.items()
    }
    source = graph.vertices[0].chain[0].operator_id
    if change == "parallelism":
        operators[source] = replace(operators[source], parallelism=1, finished=frozenset({0}))
    else:
        del operators[source]
    point = Checkpoint(replace(metadata, operators=operators), None)
    second = restore_orders(graph.pipelines[0], point)[1].subtasks[sink.id]
    assert second.is_finished == bool(second.ended_inputs) == (change == "parallelism")


def test_a_reader_that_has_read_all_it_had_gets_nothing_of_others():
    graph = job()
    source = graph.vertices[0]
    metadata = checkpoint_of(graph, parallelism=2, max_parallelism=128)
    key = source.chain[0].operator_id
    record = metadata.operators[key]
    first_only = replace(record, subtasks={0: record.subtasks[0]})
    operators = {**metadata.operators, key: first_only}
    orders = restore_orders(
        graph.pipelines[0], Checkpoint(replace(metadata, operators=operators), None)
    )
    splits = [orders[i].subtasks[source.id].operators[key].source_splits for i in range(2)]
    assert splits == [(b"split",), ()]


def test_a_source_that_had_ended_carries_its_own_part_of_a_union_list_and_others_get_all():
    graph = job()
    source, sink = (vertex.chain[0].operator_id for vertex in graph.vertices)
    metadata = ended_for_second(checkpoint_of(graph, parallelism=2, max_parallelism=128))
    union = OperatorStateFacts(StateMetadata("all", "list"), Redistribution.UNION, 3)
    operators = {
        key: replace(
            record,
            subtasks={
                i: replace(handle, operator=InlineBytes(b""), operator_states=(union,))
                for i, handle in record.subtasks.items()
            },
        )
        for key, record in metadata.operators.items()
    }
    point = Checkpoint(replace(metadata, operators=operators), None)
    orders = restore_orders(graph.pipelines[0], point)
    found = [
        [[part.owner for part in orders[i].subtasks[v.id].operators[key].parts] for i in range(2)]
        for v, key in zip(graph.vertices, (source, sink), strict=True)
    ]
    assert found == [[[0, 1], [1]], [[0, 1], [0, 1]]]


def test_operator_state_that_lists_no_states_is_not_restored():
    graph = job()
    metadata = checkpoint_of(graph, parallelism=2, max_parallelism=128)
    key = graph.vertices[0].chain[0].operator_id
    record = metadata.operators[key]
    unlisted = replace(record.subtasks[0], operator=InlineBytes(b"state"))
    operators = {**metadata.operators, key: replace(record, subtasks={0: unlisted})}
    with pytest.raises(InternalError, match="lists no states"):
        restore_orders(graph.pipelines[0], Checkpoint(replace(metadata, operators=operators), None))


def with_records_in_flight(graph):
    """A checkpoint of the job in which a barrier has overtaken records."""
    metadata = checkpoint_of(graph, parallelism=2, max_parallelism=128)
    key = graph.vertices[-1].chain[0].operator_id
    record = metadata.operators[key]
    waiting = replace(record.subtasks[0], in_flight=(ChannelHandle(0, 0, InlineBytes(b"one")),))
    operators = {**metadata.operators, key: replace(record, subtasks={0: waiting})}
    return replace(metadata, operators=operators, exchanges=exchanges_of(graph))


def chained_job(parallelism=2, chaining=True, extra=False):
    program = mapped(abs, read(range(4), uid="read"), uid="abs")
    program = mapped(abs, program, uid="more") if extra else program
    return graph_of(collected(keyed(abs, program)), parallelism=parallelism, chaining=chaining)


@pytest.mark.parametrize(
    ("changes", "fits"),
    [({}, True), ({"chaining": False}, False), ({"parallelism": 1}, False), ({"extra": 1}, False)],
)
def test_records_in_flight_are_for_the_job_as_it_was(changes, fits):
    metadata = with_records_in_flight(chained_job())
    changed = chained_job(**changes)
    assert (plan_upgrade(metadata, changed).in_flight_obstacle is None) == fits
    if fits:
        check_in_flight(metadata, exchanges_of(changed))
    else:
        with pytest.raises(StateMisuse, match=r"in flight to .* resume the unchanged job"):
            check_in_flight(metadata, exchanges_of(changed))


def test_a_checkpoint_without_records_in_flight_suits_a_changed_job():
    metadata = checkpoint_of(chained_job(), parallelism=2, max_parallelism=128)
    check_in_flight(metadata, exchanges_of(chained_job(chaining=False)))


WHOLE, LOWER, UPPER = KeyGroupRange(0, 8), KeyGroupRange(0, 4), KeyGroupRange(4, 8)


@pytest.mark.parametrize(
    ("stored", "is_at_home", "shares"),
    [([WHOLE], True, True), ([WHOLE], False, False), ([LOWER, UPPER], True, False)],
)
def test_a_database_is_shared_with_later_checkpoints_if_it_is_the_subtask_s_own(
    stored, is_at_home, shares
):
    handles = [KeyedStateHandle(metadata=(), max_parallelism=8, key_groups=g) for g in stored]
    subtask = SubtaskRestore(operators={"op": OperatorRestore(keyed=tuple(handles))})
    found = subtask.databases_to_share(WHOLE, is_at_home=is_at_home)
    assert found == ({"op": handles[0]} if shares else {})
