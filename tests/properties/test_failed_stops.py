"""Stops and drains that fail at any moment: an exactly-once sink has the undisturbed results."""

from __future__ import annotations

import tempfile
import uuid
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from hypothesis import Phase, given, note
from hypothesis import strategies as st

from tests.effort import examples
from tests.programs import PATIENCE, wait_until
from tests.properties.ledgers import Ledger, Transfers
from tests.taps import Tap
from tidegate.core.errors import NotNow, SavepointFailed
from tidegate.datastream import CheckpointedFunction, KeyedProcessFunction
from tidegate.datastream.state import ValueStateDescriptor
from tidegate.protocol.job_status import JobStatus
from tidegate.testing.environments import mini_environment
from tidegate.types.typeinfo import Types

KEYS, RECORDS = 3, 24
TROUBLES: dict[tuple[str, str], Exception] = {}
"""Where functions of a run must fail, once each."""


class Count(KeyedProcessFunction, CheckpointedFunction):
    """How often a key has occurred, emitted with it."""

    def __init__(self, run: str) -> None:
        self.run = run

    def open(self, runtime_context):
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def initialize_state(self, context):
        pass

    def snapshot_state(self, context):
        self.fail_at("snapshot")

    def process_element(self, value, ctx):
        self.fail_at("record")
        count = (self.count.value() or 0) + 1
        self.count.update(count)
        yield f"{value % KEYS}: {count}"

    def fail_at(self, what):
        # Atomically: the function runs in several slots at once.
        if (trouble := TROUBLES.pop((self.run, what), None)) is not None:
            raise trouble


@dataclass(frozen=True)
class Attempt:
    """An attempt to stop the job, with an obstacle."""

    flows: tuple[int, ...]
    """How much of each pipeline has passed, in percent."""
    drains: bool
    trouble: str
    is_checkpointed: bool
    """Whether a checkpoint is taken first."""


@st.composite
def attempts(draw, pipelines):
    count = draw(st.integers(1, 4))
    flows = [
        # The first pipeline never ends before the others, so that the job can be stopped.
        sorted(
            draw(st.lists(st.integers(0, 100 if number else 95), min_size=count, max_size=count))
        )
        for number in range(pipelines)
    ]
    return [
        Attempt(
            flows=tuple(flow[number] for flow in flows),
            drains=draw(st.booleans()),
            trouble=draw(st.sampled_from(["directory", "snapshot", "record", "another stop"])),
            is_checkpointed=draw(st.booleans()),
        )
        for number in range(count)
    ]


class Run:
    """A job of several pipelines, each with a tap and a ledger."""

    def __init__(self, place: Path, pipelines: int, configuration: dict) -> None:
        self.place = place
        self.name = uuid.uuid4().hex
        (place / "file").write_text("in the way")
        self.taps = [Tap(range(RECORDS)) for _ in range(pipelines)]
        self.ledgers = [Ledger(f"{self.name}{number}") for number in range(pipelines)]
        env = mini_environment(
            {
                "execution.checkpointing.dir": str(place / "checkpoints"),
                "execution.checkpointing.tolerable-failed-checkpoints": 10**6,
                "restart-strategy.type": "fixed-delay",
                "restart-strategy.fixed-delay.attempts": 4,
                "restart-strategy.fixed-delay.delay": "1 ms",
                "tidegate.step.max-records": 3,
                "tidegate.console.live-line": "off",
                **configuration,
            },
            parallelism=2,
        )
        for number, tap in enumerate(self.taps):
            counted = env.from_source(tap).key_by(lambda n: n % KEYS).process(Count(self.name))
            counted.add_sink(Transfers(f"{self.name}{number}"))
        self.job = env.execute_async("stopped for nothing")

    def let(self, flows: tuple[int, ...]) -> None:
        for tap, percent in zip(self.taps, flows, strict=True):
            tap.let(RECORDS * percent // 100)

    def attempt(self, attempt: Attempt) -> None:
        """Try to stop; whatever the outcome, the job continues."""
        wait_until(lambda: self.job.get_job_status().result() is JobStatus.RUNNING)
        if attempt.is_checkpointed:
            self.answer(self.job.trigger_checkpoint())
        self.let(attempt.flows)
        if attempt.trouble in ("record", "snapshot"):
            TROUBLES[self.name, attempt.trouble] = RuntimeError("told to fail")
        bad = str(self.place / "file")
        answers = [self.job.stop_with_savepoint(attempt.drains, bad)]
        if attempt.trouble == "another stop":
            answers.append(self.job.stop_with_savepoint(not attempt.drains, bad))
        assert [self.answer(each) for each in answers] == [None] * len(answers)

    @staticmethod
    def answer(answer) -> str | None:
        try:
            return answer.result(PATIENCE)
        except (SavepointFailed, NotNow) as refusal:
            note(f"refused: {refusal}")
            return None

    def finish(self) -> list[Counter[str]]:
        TROUBLES.clear()
        self.let((100,) * len(self.taps))
        self.job.wait(PATIENCE)
        return [
            Counter(line for lines in ledger.committed.values() for line in lines)
            for ledger in self.ledgers
        ]


@given(st.data())
# A failure may depend on timing, so it is reported without shrinking.
@examples(4, phases=[Phase.explicit, Phase.reuse, Phase.generate])
def test_however_often_a_job_is_stopped_for_nothing_it_has_its_result(data):
    pipelines = data.draw(st.integers(1, 2))
    configuration = {
        "execution.checkpointing.interval": data.draw(st.sampled_from(["20 ms", "1 h"])),
        "jobmanager.execution.failover-strategy": data.draw(st.sampled_from(["full", "region"])),
    }
    plan = data.draw(attempts(pipelines))
    with tempfile.TemporaryDirectory(prefix="tidegate-stops-") as place:
        run = Run(Path(place), pipelines, configuration)
        for attempt in plan:
            run.attempt(attempt)
        expected = Counter(f"{n % KEYS}: {n // KEYS + 1}" for n in range(RECORDS))
        assert run.finish() == [expected] * pipelines
