"""A job that is stopped at any moment and resumed at another parallelism has the same result."""

import shutil
import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import Phase, given, note
from hypothesis import strategies as st

import tidegate
from tests.effort import examples
from tests.programs import PATIENCE, wait_until
from tests.properties.remembering import LATEST
from tests.properties.stopped_programs import Run, programs, state_in
from tidegate.core.errors import JobCanceled, SavepointFailed
from tidegate.core.modes import SavepointFormat

PARALLELISMS = 1, 3, 2, 4


@dataclass(frozen=True)
class Setting:
    """How a job is started."""

    backend: str
    interval: str | None
    mode: str
    claim: str
    """The claim mode of its restore."""
    concurrent: int = 1
    """The maximum number of concurrent checkpoints."""

    def values(self, place):
        chosen = {
            "state.backend.type": self.backend,
            "execution.state-recovery.claim-mode": self.claim,
            "execution.checkpointing.dir": str(place / "checkpoints"),
            "execution.checkpointing.savepoint-dir": str(place / "savepoints"),
            "execution.checkpointing.externalized-checkpoint-retention": "RETAIN_ON_CANCELLATION",
            "execution.checkpointing.unaligned.enabled": self.mode == "unaligned",
            "execution.checkpointing.max-concurrent-checkpoints": self.concurrent,
        }
        if self.mode == "at least once":
            chosen["execution.checkpointing.mode"] = "AT_LEAST_ONCE"
        if self.interval is not None:
            chosen["execution.checkpointing.interval"] = self.interval
        return chosen


@dataclass(frozen=True)
class Leg:
    """How far a job gets with one parallelism, and how it gets the next."""

    setting: Setting
    """After a rescaling, that of the previous leg."""
    time: int
    """The clock, in milliseconds."""
    flows: int
    """How much of every stream may pass, in percent."""
    moment: int
    """After how much of that it is interrupted, in percent."""
    end: str
    format: SavepointFormat


@st.composite
def journeys(draw):
    """Three interruptions and the last leg; flow and time only increase."""
    flows = sorted(draw(st.lists(st.integers(0, 100), min_size=3, max_size=3)))
    times = sorted(draw(st.lists(st.integers(0, LATEST), min_size=3, max_size=3)))
    interruptions = st.sampled_from(["stop", "cancel", "rescale", "checkpoint"])
    ends = [
        *draw(st.lists(interruptions, min_size=3, max_size=3)),
        draw(st.sampled_from(["stop", "drain", "end"])),
    ]
    legs = []
    for number, end in enumerate(ends):
        if number == 0 or ends[number - 1] != "rescale":
            setting = draw(settings_until(next(e for e in ends[number:] if e != "rescale")))
        legs.append(
            Leg(
                setting,
                time=[*times, LATEST][number],
                flows=[*flows, 100][number],
                moment=draw(st.integers(0, 100)),
                end=end,
                format=draw(st.sampled_from(SavepointFormat)),
            )
        )
    return legs


@st.composite
def settings_until(draw, end):
    """Settings with which a job can be resumed exactly after such an end."""
    modes = ["aligned", "unaligned", "at least once"]
    if end == "checkpoint":  # such records are repeated, or cannot be redistributed
        modes = ["aligned"]
    return Setting(
        backend=draw(st.sampled_from(["hashmap", "rocksdb"])),
        interval=draw(st.sampled_from(["10 ms"] if end == "checkpoint" else [None, "10 ms"])),
        mode=draw(st.sampled_from(modes)),
        claim=draw(st.sampled_from(["NO_CLAIM", "CLAIM"])),
        concurrent=draw(st.sampled_from([1, 3])),
    )


UNDISTURBED = Leg(
    Setting(backend="hashmap", interval="100 ms", mode="aligned", claim="NO_CLAIM"),
    time=LATEST,
    flows=100,
    moment=100,
    end="stop",
    format=SavepointFormat.CANONICAL,
)


def path_of(job, answer):
    """The path that a job returns; if it failed meanwhile, why."""
    try:
        return answer.result(PATIENCE)
    except SavepointFailed:
        job.wait(PATIENCE)
        raise


def interrupt(job, leg, place):
    """End a job; returns where another one resumes."""
    if leg.end == "checkpoint":
        checkpoint = Path(path_of(job, job.trigger_checkpoint()))
        job.cancel_and_wait()
        return str(checkpoint.parent)
    if leg.end == "stop":
        path = path_of(job, job.stop_with_savepoint(False, None, leg.format))
        job.wait(PATIENCE)
    else:
        path = path_of(job, job.cancel_with_savepoint(None, leg.format))
        with pytest.raises(JobCanceled):
            job.wait(PATIENCE)
    moved = place / "moved" / Path(path).name
    shutil.move(path, moved)
    return str(moved)


def finish(run, job, leg):
    """Let the job do everything, and end; returns its last state."""

    def settled():
        path = path_of(job, job.trigger_savepoint(None, leg.format))
        reader = tidegate.state_reader(path)
        if run.is_through(reader):
            return reader
        shutil.rmtree(path)
        return None

    state = state_in(wait_until(settled))
    if leg.end == "end":
        run.end()
    else:
        path_of(job, job.stop_with_savepoint(leg.end == "drain", None, leg.format))
    job.wait(PATIENCE)
    return state


def travel(run, legs, parallelisms):
    """Run a program in legs; returns its last state."""
    job, start = None, {}
    for leg, parallelism, following in zip(
        legs, parallelisms, [*parallelisms[1:], None], strict=True
    ):
        run.clock.advance(leg.time / 1000 - run.clock.time())
        run.let(leg.flows)
        if job is None:
            job = run.start(parallelism, {**leg.setting.values(run.place), **start})
        run.wait_for(leg.moment, job)
        if following is None:
            return finish(run, job, leg)
        if leg.end == "rescale":
            path_of(job, job.rescale(following))
        else:
            start = {"execution.state-recovery.path": interrupt(job, leg, run.place)}
            job = None
    raise AssertionError("a journey has a last leg")


def check_takeovers(run):
    """Every subtask found its share of the state."""
    parallelisms = {}
    for name, subtasks in run.takeovers.deployments():
        note(f"{name} began with {subtasks}")
        if "rules" in subtasks[0]:
            assert all(found["rules"] == subtasks[0]["rules"] for found in subtasks)
            continue
        everything = Counter(record for found in subtasks for record in found["split"])
        assert all(Counter(found["union"]) == everything for found in subtasks)
        sizes = [len(found["split"]) for found in subtasks]
        if parallelisms.get(name) != len(subtasks):
            assert max(sizes) - min(sizes) <= 1, "it is dealt out evenly"
        parallelisms[name] = len(subtasks)


def in_a_directory(example):
    with tempfile.TemporaryDirectory(prefix="tidegate-journeys-") as place:
        example(Path(place))


def begin(program, place):
    place.mkdir()
    (place / "moved").mkdir()
    return Run(program, place)


@pytest.mark.slow
@given(programs(), journeys())
@examples(
    3,
    # A failure may depend on timing, so it is reported without shrinking.
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
)
def test_interrupted_and_carried_on_a_job_has_the_result_of_an_undisturbed_one(program, legs):
    note(f"{program}\n{legs}")

    def example(place):
        undisturbed = begin(program, place / "undisturbed")
        expected = travel(undisturbed, [UNDISTURBED], [1])
        interrupted = begin(program, place / "interrupted")
        state = travel(interrupted, legs, PARALLELISMS)
        check_takeovers(interrupted)
        assert interrupted.results() == undisturbed.results()
        assert state == expected

    in_a_directory(example)
