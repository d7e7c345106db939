"""Invariants of the checkpoints of every program, whatever fails."""

import tempfile
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.effort import examples
from tests.jobs import on_disk
from tests.programs import wait_until
from tests.properties.checkpointed_programs import (
    GROUPS,
    checkpoints_on,
    expected,
    launched,
    named_files,
    present_files,
    programs,
    remembered,
)

BACKENDS = st.sampled_from(["hashmap", "rocksdb"])
MANY = {"execution.checkpointing.num-retained": 1000}
RESTARTS = {
    "restart-strategy": "fixed-delay",
    "restart-strategy.fixed-delay.attempts": 1000,
    "restart-strategy.fixed-delay.delay": "1 ms",
}
modest = examples(4)


@st.composite
def failures(draw):
    """Calls of operators that raise, and slots that are killed after some number of records."""
    program = draw(programs())
    calls = st.tuples(st.sampled_from(program.operators), st.integers(1, 300))
    kills = st.tuples(st.integers(0, 2), st.integers(0, 400))
    return program, draw(st.sets(calls, max_size=3)), draw(st.lists(kills, max_size=2))


def settings_for(directory, backend, **more):
    return on_disk(directory, **{"state.backend.type": backend, **more})


def kill(running, kills):
    for slot, reads in sorted(kills, key=lambda each: each[1]):
        total = sum(sum(tap.flow.limits) for tap in running.taps.values())
        wait_until(lambda reads=reads, total=total: running.reads >= min(reads, total))
        with suppress(KeyError):  # it is not there, or just being started
            running.job.cluster.kill(slot)


def state_of(program, found):
    return {
        number: remembered(program, found, number)
        for number, node in enumerate(program.nodes)
        if node.kind != "source"
    }


def due(running, metadata):
    return {
        number: expected(running.program, running.taps, metadata, number)
        for number, node in enumerate(running.program.nodes)
        if node.kind != "source"
    }


def in_a_directory(example):
    with tempfile.TemporaryDirectory(prefix="tidegate-invariants-") as place:
        example(Path(place))


@pytest.mark.slow
@given(programs(), BACKENDS, st.booleans())
@modest
def test_a_checkpoint_is_the_effect_of_exactly_the_records_before_its_positions(
    program, backend, ends
):
    def example(place):
        running = launched(program, settings_for(place, backend, **MANY), ends=ends)
        running.wait_until_saved()
        running.job.cancel()
        found = checkpoints_on(place / running.job.master.job_id)
        assert found
        for each in found:
            assert state_of(program, each) == due(running, each.metadata), each.path

    in_a_directory(example)


@pytest.mark.slow
@given(failures(), BACKENDS, st.sampled_from(["EXACTLY_ONCE", "UNALIGNED", "AT_LEAST_ONCE"]))
@modest
def test_whatever_fails_a_record_is_counted_as_often_as_is_promised(drawn, backend, mode):
    program, calls, kills = drawn
    modes = {
        "EXACTLY_ONCE": {},
        "UNALIGNED": {"execution.checkpointing.unaligned.enabled": True},
        "AT_LEAST_ONCE": {"execution.checkpointing.mode": "AT_LEAST_ONCE"},
    }

    def example(place):
        chosen = settings_for(place, backend, **RESTARTS, **modes[mode])
        running = launched(program, chosen, calls=calls)
        kill(running, kills)
        running.wait_until_saved()
        running.job.cancel()
        latest = checkpoints_on(place / running.job.master.job_id)[-1]
        state, wanted = state_of(program, latest), due(running, latest.metadata)
        if mode == "AT_LEAST_ONCE":
            assert {n: set(c) for n, c in state.items()} == {n: set(c) for n, c in wanted.items()}
            assert all(state[number] >= wanted[number] for number in wanted)
        else:
            assert state == wanted

    in_a_directory(example)


@pytest.mark.slow
@given(failures(), BACKENDS, st.integers(1, 3))
@modest
def test_every_file_is_named_by_a_retained_checkpoint_and_the_other_way_round(
    drawn, backend, retained
):
    program, calls, kills = drawn
    more = {**RESTARTS, "execution.checkpointing.num-retained": retained}

    def example(place):
        chosen = settings_for(place, backend, **more)
        running = launched(program, chosen, calls=calls)
        kill(running, kills)
        running.wait_until_saved()
        running.job.cancel()
        directory = place / running.job.master.job_id
        found = checkpoints_on(directory)
        assert 1 <= len(found) <= retained
        assert named_files(found) <= present_files(directory), "nothing is missing"
        if kills:  # the next process removes what a dead one was about to write
            again = {**chosen, "execution.state-recovery.path": "latest"}
            following = launched(program, again, taps=running.taps)
            assert following.job.master.job_id == running.job.master.job_id
            following.wait_until_saved()
            following.job.cancel()
            found = checkpoints_on(directory)
        assert named_files(found) == present_files(directory)

    in_a_directory(example)


@pytest.mark.slow
@given(programs(), BACKENDS, BACKENDS, st.integers(1, 4))
@modest
def test_a_job_that_continues_with_another_parallelism_has_all_state_once(
    program, before, after, parallelism
):
    def example(place):
        running = launched(program, settings_for(place / "old", before))
        for tap in running.taps.values():
            for stream, limit in enumerate(tap.flow.limits):
                tap.let(limit // 2, stream)
        running.wait_until_saved()
        running.job.cancel()
        path = checkpoints_on(place / "old" / running.job.master.job_id)[-1].path
        rescaled = launched(
            program,
            {**settings_for(place / "new", after), "execution.state-recovery.path": path},
            taps=running.taps,
            parallelism=parallelism,
        )
        for number, tap in running.taps.items():
            for stream, count in enumerate(program.nodes[number].streams):
                tap.let(count, stream)
        metadata = rescaled.wait_until_saved()
        rescaled.job.cancel()
        latest = checkpoints_on(place / "new" / rescaled.job.master.job_id)[-1]
        assert state_of(program, latest) == due(rescaled, metadata)
        for record in latest.metadata.operators.values():
            handles = [handle.keyed for handle in record.subtasks.values() if handle.keyed]
            groups = Counter(group for keyed in handles for group in keyed.key_groups)
            assert not groups or groups == Counter(range(GROUPS)), record.name

    in_a_directory(example)
