"""The whole proof: one undisturbed run, then runs that are killed at points of the protocol."""

from __future__ import annotations

import random
import subprocess
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tidegate.core.errors import ExternalError
from tidegate.core.fault_points import FaultPoint, Order, Victim
from tidegate.verify.content import RUN, Content, read_content
from tidegate.verify.supervised import ProgramCommand, SupervisedRun
from tidegate.verify.verdict import NO_DIFFERENCE, PointVerdict, SinkDifference

UNDISTURBED = "undisturbed"
_MOST_SPARED = 3
_SETTINGS = (
    ("execution.checkpointing.externalized-checkpoint-retention", "RETAIN_ON_CANCELLATION"),
    ("tidegate.console.live-line", "off"),
)
_RESTARTS = (
    ("restart-strategy.type", "fixed-delay"),
    ("restart-strategy.fixed-delay.attempts", "1000000"),
    ("restart-strategy.fixed-delay.delay", "100 ms"),
)
_NO_RESTARTS = (("restart-strategy.type", "none"),)


@dataclass(frozen=True, slots=True, kw_only=True)
class Campaign:
    """The options; see `tidegate verify --help`."""

    job: Path
    arguments: Sequence[str]
    sink: str
    directory: Path
    """For checkpoints and logs."""
    kills: int = 60
    points: Sequence[FaultPoint] = tuple(FaultPoint)
    settings: Sequence[tuple[str, str]] = ()
    prepare: str | None = None
    """A shell command to run before every run."""
    at_least_once: bool = False
    patience_seconds: float = 300.0
    seed: int = 0

    def carry_out(self, told: Callable[[str, int], None]) -> Iterator[PointVerdict]:
        """Run the campaign; `told` is called with each activity and the number of kills.

        Raises:
            ExternalError: the program fails by itself, never ends, or cannot be killed at a point.
        """
        told("running undisturbed", 0)
        expected = self._run(UNDISTURBED, iter(()), lambda order: None)
        if not expected:
            raise ExternalError(
                f"the undisturbed run left nothing in {self.sink.replace(RUN, UNDISTURBED)}, so "
                "there is nothing to compare: does the sink's address fit the program's arguments?"
            )
        chance = random.Random(self.seed)
        done = 0
        for index, point in enumerate(self.points):
            share = self.kills // len(self.points) + (index < self.kills % len(self.points))
            if share:
                verdict = self._at(point, share, expected, chance, told, done)
                done += verdict.kills
                yield verdict

    def _at(
        self,
        point: FaultPoint,
        kills: int,
        expected: Content,
        chance: random.Random,
        told: Callable[[str, int], None],
        done: int,
    ) -> PointVerdict:
        """As many runs as necessary: a job may end before all kills are made."""
        difference: SinkDifference = NO_DIFFERENCE
        made, runs = 0, 0

        def killed(order: Order) -> None:
            nonlocal made
            made += order.point is point
            told(f"killing {point.value}", done + made)

        while made < kills:
            runs += 1
            before = made
            told(f"killing {point.value}", done + made)
            first = self.points.index(point)  # so that even few kills include both kinds
            orders = _orders(point, range(first + made, first + kills), chance)
            found = self._run(f"{point.name.lower()}_{runs}", orders, killed)
            difference += SinkDifference.between(expected, found)
            if made == before:
                raise ExternalError(
                    f"the job ended without being killed {point.value}: does it take "
                    "checkpoints? Give it more input, or a shorter --interval"
                )
        return PointVerdict(point, made, difference, self.at_least_once)

    def _run(self, name: str, orders: Iterator[Order], killed: Callable[[Order], None]) -> Content:
        restarts = _NO_RESTARTS if name == UNDISTURBED else _RESTARTS
        if self.prepare is not None:
            _prepare(self.prepare.replace(RUN, name))
        command = ProgramCommand(
            self.job,
            tuple(argument.replace(RUN, name) for argument in self.arguments),
            (*_SETTINGS, *restarts, *self.settings),
        )
        run = SupervisedRun(command, self.directory / name, self.patience_seconds)
        run.to_its_end(orders, killed)
        return read_content(self.sink, name)


def _orders(point: FaultPoint, kills: range, chance: random.Random) -> Iterator[Order]:
    """Slots and drivers in turn; killing during a restore needs another kill first."""
    number = 0
    for index in kills:
        victim = Victim.SLOT if index % 2 == 0 else Victim.DRIVER
        order = Order(0, point, victim, chance.randrange(_MOST_SPARED))
        opening = replace(order, point=FaultPoint.COMMIT, victim=Victim.SLOT)
        steps = [opening, replace(order, spared=0)] if point is FaultPoint.RESTORE else [order]
        for step in steps:
            number += 1
            yield replace(step, number=number)


def _prepare(command: str) -> None:
    done = subprocess.run(command, shell=True, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise ExternalError(f"{command!r} failed: {(done.stderr or done.stdout).strip()[-500:]}")
