"""How far a restore has come, and how far a job that went back is behind where it had been."""

import pytest

from tests.effort import some
from tests.jobs import Job, Watch, on_disk, pairs, summed
from tests.programs import PATIENCE, graph_of, read
from tests.taps import Tap
from tidegate.checkpoint.locate import open_checkpoint
from tidegate.core.modes import SavepointFormat
from tidegate.driver.checkpoints.restoring import Restoring, together
from tidegate.driver.pipeline_driver import ReadPosition
from tidegate.protocol.checkpoints.restore_orders import restore_orders
from tidegate.slot import restored_state
from tidegate.slot.restored_state import RestoredState
from tidegate.state.keys.key_groups import range_of
from tidegate.stream.elements import BarrierKind

KEYS = 100


def plan(watch, tap, parallelism):
    return graph_of(summed(watch, read(tap)), parallelism=parallelism)


@pytest.fixture(params=some("hashmap", "rocksdb"))
def backend(request):
    return request.param


@pytest.fixture(params=[*SavepointFormat, None], ids=str)
def stored(request, backend, tmp_path):
    """A savepoint of a job with two subtasks, or a checkpoint."""
    watch, tap = Watch(), Tap(pairs(KEYS, keys=KEYS))
    more = {"state.backend.type": backend, "execution.checkpointing.interval": "1 h"}
    settings = on_disk(tmp_path / "checkpoints", **more)
    job = Job(plan(watch, tap, 2), settings)
    tap.let_pass(KEYS - 1)
    if request.param is None:
        order = job.order(BarrierKind.CHECKPOINT)
    else:
        order = job.order(BarrierKind.SAVEPOINT, tmp_path / "savepoints", request.param)
    yield open_checkpoint(order.result(PATIENCE))
    job.cancel()


@pytest.mark.parametrize("parallelism", [1, 2, 3])
def test_slots_read_as_much_as_the_driver_expects(stored, parallelism, tmp_path, monkeypatch):
    monkeypatch.setattr(restored_state, "_REPORTED_BYTES", 1)
    graph = plan(Watch(), Tap(pairs(1)), parallelism)
    (pipeline,) = graph.pipelines
    for slot, order in restore_orders(pipeline, stored).items():
        read_bytes = []
        state = RestoredState(order, read_bytes.append)
        for vertex in pipeline.vertices:
            own = range_of(slot, vertex.parallelism, vertex.max_parallelism)
            for chained in vertex.chain:
                state.operator_states(vertex.id, chained.operator_id)
            for operator, snapshots in state.snapshots(vertex.id).items():
                for number, image in enumerate(s.keyed for s in snapshots if s.keyed is not None):
                    if image.native_form is None:
                        list(image.chunks(own))
                    else:
                        image.fetch(tmp_path / f"{slot}-{operator}-{number}")
        assert sum(read_bytes) == order.size > 0


def test_a_slot_that_is_open_has_read_everything():
    restoring = Restoring(7, {0: 100, 1: 50})
    assert restoring.progress.read == 0
    restoring.read(0, 60)
    restoring.read(0, 60)
    assert (restoring.progress.read, restoring.progress.size) == (100, 150)
    restoring.opened(0)
    assert not restoring.progress.is_complete
    restoring.opened(1)
    assert restoring.progress.is_complete
    assert restoring.progress.read == 150


def test_a_job_has_restored_what_its_pipelines_have():
    done, begun = Restoring(3, {0: 10}), Restoring(4, {0: 30})
    done.opened(0)
    found = together([done.progress, begun.progress])
    assert (found.checkpoint_id, found.read, found.size) == (4, 10, 40)
    assert not found.is_complete
    assert together([]) is None


def test_records_after_a_checkpoint_are_read_again():
    position = ReadPosition()
    position.restarted(None, 0)
    position.triggered(1, 100)
    position.triggered(2, 250)
    assert position.to_repeat(300) == 0
    position.restarted(2, 300)
    assert (position.to_repeat(0), position.to_repeat(20), position.to_repeat(90)) == (50, 30, 0)


def test_a_job_that_fails_again_is_still_behind_where_it_had_been():
    position = ReadPosition()
    position.triggered(1, 100)
    position.restarted(1, 300)
    position.triggered(2, 50)
    position.restarted(2, 60)
    assert position.to_repeat(0) == 150
    position.restarted(1, 500)
    assert position.to_repeat(0) == 550


def test_without_a_checkpoint_everything_is_read_again():
    position = ReadPosition()
    position.restarted(None, 40)
    assert position.to_repeat(0) == 40
