"""From measurements to medians, ratios and verdicts. Pure: no printing, no files."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median

from benchmarks.cases import FEW, SLOT_COUNTS, Case, Workload
from benchmarks.goals import LIMIT_GOALS, RATIO_GOALS, Goal, LimitGoal, Outcome
from benchmarks.measure import Measurement

OURS = "tidegate"


@dataclass(frozen=True)
class Line:
    """A peer on a case, over all repeats."""

    peer: str
    case: str
    rate: float | None
    lowest: float | None
    highest: float | None
    results_per_record: float | None
    commit_interval: float | None
    measures: dict[str, float]
    verified: bool
    steady: bool
    failure: str | None
    notes: list[str]


@dataclass(frozen=True)
class Verdict:
    """A goal, what was measured, and what follows."""

    goal: Goal
    value: float | None
    outcome: Outcome


class Summary:
    """All lines of a run, and what the goals say to them."""

    def __init__(self, measurements: Sequence[Measurement]) -> None:
        grouped: dict[tuple[str, str], list[Measurement]] = {}
        for one in measurements:
            grouped.setdefault((one.case, one.peer), []).append(one)
        self._lines = {
            (case, peer): _line(peer, case, group) for (case, peer), group in grouped.items()
        }

    def lines(self, case: Case) -> list[Line]:
        """The lines of a case, in the order in which they were measured."""
        return [line for (name, _), line in self._lines.items() if name == case.name]

    def line(self, case: Case, peer: str) -> Line | None:
        return self._lines.get((case.name, peer))

    def ratio(self, case: Case, peers: Iterable[str]) -> float | None:
        """Tidegate's rate over the fastest of some peers', as far as they were measured."""
        ours = self.line(case, OURS)
        theirs = [
            line.rate
            for peer in peers
            if (line := self.line(case, peer)) is not None and line.rate is not None
        ]
        if ours is None or ours.rate is None or not theirs:
            return None
        return ours.rate / max(theirs)

    def verdicts(self) -> list[Verdict]:
        found = []
        for ratio_goal in RATIO_GOALS:
            ratio = self.ratio(ratio_goal.case, ratio_goal.peers)
            found.append(Verdict(ratio_goal, ratio, ratio_goal.judge(ratio)))
        for limit_goal in LIMIT_GOALS:
            value = self._measure(limit_goal)
            found.append(Verdict(limit_goal, value, limit_goal.judge(value)))
        return found

    def _measure(self, goal: LimitGoal) -> float | None:
        if goal.case.workload is Workload.SLOTS:
            return self._slot_model()
        if goal.measure == "tumbling_over_sliding":
            tumbling = self.line(Case(Workload.TUMBLING, goal.case.keys), OURS)
            sliding = self.line(goal.case, OURS)
            rates = [line.rate for line in (tumbling, sliding) if line is not None]
            return rates[0] / rates[1] if len(rates) == 2 and all(rates) else None
        ours = self._value(goal.case, goal.peer, goal.measure)
        if goal.than is None or ours is None:
            return ours
        theirs = self._value(goal.case, goal.than, goal.measure)
        return None if theirs is None else ours / theirs

    def _value(self, case: Case, peer: str, measure: str) -> float | None:
        line = self.line(case, peer)
        return None if line is None else line.measures.get(measure)

    def _slot_model(self) -> float | None:
        """The CPU time per record with most slots over what the model says (see README).

        A record costs `work`, which one slot shows, and `exchange` if it leaves its slot, as half
        of them do with two slots, and (S - 1) / S of them with S.
        """
        costs = {
            slots: line.measures["cpu_us"]
            for slots in SLOT_COUNTS
            if (line := self.line(Case(Workload.SLOTS, FEW, slots), OURS)) is not None
            and "cpu_us" in line.measures
        }
        if len(costs) < len(SLOT_COUNTS):
            return None
        work, exchange = costs[1], 2 * (costs[2] - costs[1])
        most = max(SLOT_COUNTS)
        return costs[most] / (work + exchange * (most - 1) / most)


def _line(peer: str, case: str, group: list[Measurement]) -> Line:
    good = [one for one in group if one.failure is None]
    rates = [one.rate for one in good if one.rate is not None]
    names = {name for one in good for name in one.measures}
    return Line(
        peer=peer,
        case=case,
        rate=median(rates) if rates else None,
        lowest=min(rates, default=None),
        highest=max(rates, default=None),
        results_per_record=_median(one.results_per_record for one in good),
        commit_interval=_median(one.commit_interval for one in good),
        measures={
            name: median(one.measures[name] for one in good if name in one.measures)
            for name in sorted(names)
        },
        verified=bool(good) and all(one.verified for one in good),
        steady=all(one.steady is not False for one in good),
        failure=None if good else group[-1].failure,
        notes=good[-1].notes if good else [],
    )


def _median(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return median(known) if known else None
