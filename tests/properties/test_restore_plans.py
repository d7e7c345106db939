"""At any old and new parallelism, nothing of a checkpoint is lost or duplicated."""

from hypothesis import given
from hypothesis import strategies as st

from tests.effort import examples
from tests.programs import collected, graph_of, keyed, read
from tidegate.checkpoint.checkpoint import Checkpoint
from tidegate.checkpoint.metadata import CheckpointMetadata, OperatorRecord
from tidegate.protocol.checkpoints.restore_orders import restore_orders
from tidegate.state.backend import StateMetadata
from tidegate.state.keys.key_groups import range_of, subtask_of
from tidegate.state.operator_state import OperatorStateFacts, Redistribution
from tidegate.state.pointers import InlineBytes, KeyedStateHandle, OperatorHandle
from tidegate.stream.elements import BarrierKind

GROUPS = 16
COUNTS = st.integers(0, 4)
NAMES = {kind: kind.name.lower() for kind in Redistribution}


@st.composite
def checkpoints(draw):
    """(graph, checkpoint): each operator has all kinds of state, and some subtasks have ended."""
    old, new = draw(st.integers(1, 5)), draw(st.integers(1, 5))
    graph = graph_of(collected(keyed(abs, read(range(4)))), parallelism=new, max_parallelism=GROUPS)
    records = {}
    for chained in (chained for vertex in graph.vertices for chained in vertex.chain):
        subtasks = {}
        for subtask in draw(st.sets(st.integers(0, old - 1)) | st.just(range(old))):
            facts = tuple(
                OperatorStateFacts(StateMetadata(name, "list"), kind, draw(COUNTS))
                for kind, name in NAMES.items()
            )
            subtasks[subtask] = OperatorHandle(
                operator_id=chained.operator_id,
                keyed=KeyedStateHandle(
                    metadata=(), max_parallelism=GROUPS, key_groups=range_of(subtask, old, GROUPS)
                ),
                operator=InlineBytes(b"%d" % subtask),
                operator_states=facts,
                source_splits=(b"split of %d" % subtask,),
            )
        records[chained.operator_id] = OperatorRecord(
            operator_id=chained.operator_id,
            uid=None,
            name=chained.name,
            parallelism=old,
            max_parallelism=GROUPS,
            subtasks=subtasks,
            finished=frozenset(draw(st.sets(st.integers(0, old - 1)))),
        )
    return graph, CheckpointMetadata(
        job_id="job",
        job_name="job",
        checkpoint_id=7,
        kind=BarrierKind.CHECKPOINT,
        triggered_at=0.0,
        completed_at=1.0,
        operators=records,
    )


@examples()
@given(checkpoints())
def test_everything_goes_where_it_belongs_also_what_ended_subtasks_have(drawn):
    graph, metadata = drawn
    orders = restore_orders(graph.pipelines[0], Checkpoint(metadata, None))
    for vertex in graph.vertices:
        for chained in vertex.chain:
            record = metadata.operators[chained.operator_id]
            shares = [order.subtasks[vertex.id].operators for order in orders.values()]
            given = [share.get(chained.operator_id) for share in shares]
            _check_keyed(record, given)
            is_source = vertex.source is not None and chained is vertex.chain[0]
            ended = [order.subtasks[vertex.id].is_finished for order in orders.values()]
            _check_operator_states(record, given, [is_source and each for each in ended])
            splits = [split for each in given if each for split in each.source_splits]
            assert sorted(splits) == sorted(
                split for handle in record.subtasks.values() for split in handle.source_splits
            )


def _check_keyed(record, given):
    """Every subtask gets all stored state of its key groups."""
    for subtask, restore in enumerate(given):
        groups = range_of(subtask, len(given), GROUPS)
        owners = {subtask_of(group, record.parallelism, GROUPS) for group in groups}
        wanted = [record.subtasks[i].keyed for i in sorted(owners & record.subtasks.keys())]
        assert list(restore.keyed if restore else ()) == (wanted if restore else [])


def _check_operator_states(record, given, is_kept):
    stored = {
        (facts.name, owner, place)
        for owner, handle in record.subtasks.items()
        for facts in handle.operator_states
        for place in range(facts.elements)
    }

    def of_kind(name):
        return sorted(element for element in stored if element[0] == name)

    taken = [
        [
            (part.state, part.owner, place)
            for part in (restore.parts if restore else ())
            for place in range(part.start, part.stop)
        ]
        for restore in given
    ]
    for subtask, (each, restore) in enumerate(zip(taken, given, strict=True)):
        assert {owner for _, owner, _ in each} == (restore.operator.keys() if restore else set())
        union = [element for element in each if element[0] == "union"]
        if not is_kept[subtask]:
            assert sorted(union) == of_kind("union")
        elif len(given) == record.parallelism:
            assert sorted(union) == [each for each in of_kind("union") if each[1] == subtask]
    if all(is_kept):
        union = [element for each in taken for element in each if element[0] == "union"]
        assert sorted(union) == of_kind("union"), "each element is handed on once"
    split = [element for each in taken for element in each if element[0] == "split"]
    assert sorted(split) == of_kind("split")
    if record.parallelism != len(given):
        sizes = [sum(element[0] == "split" for element in each) for each in taken]
        assert max(sizes) - min(sizes) <= 1
        assert split == sorted(split), "in their order"
