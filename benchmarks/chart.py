"""The chart: one panel per throughput case, bars on a logarithmic axis."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from benchmarks.cases import Case
from benchmarks.measure import Measurement
from benchmarks.registry import BY_NAME
from benchmarks.summary import OURS, Summary

OUR_COLOR, THEIR_COLOR, INK = "#0b6e99", "#b9c4cc", "#22313a"


def draw(path: Path, cases: Sequence[Case], measurements: Sequence[Measurement]) -> bool:
    """Draw what has a rate; false if nothing has."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    summary = Summary(measurements)
    panels = []
    for case in cases:
        bars = [(line.peer, line.rate) for line in summary.lines(case) if line.rate is not None]
        if case.workload.throughput and bars:
            panels.append((case, sorted(bars, key=lambda bar: bar[1])))
    if not panels:
        return False
    heights = [1.0 + len(bars) * 0.5 for _, bars in panels]
    figure, axes = pyplot.subplots(
        len(panels),
        1,
        figsize=(10, sum(heights)),
        height_ratios=heights,
        squeeze=False,
        layout="constrained",
    )
    largest = max(rate for _, bars in panels for _, rate in bars)
    for axis, (case, bars) in zip(axes[:, 0], panels, strict=True):
        names = [BY_NAME[peer].title for peer, _ in bars]
        rates = [rate for _, rate in bars]
        colors = [OUR_COLOR if peer == OURS else THEIR_COLOR for peer, _ in bars]
        axis.barh(names, rates, color=colors, height=0.7)
        for position, rate in enumerate(rates):
            axis.text(rate * 1.08, position, _short(rate), va="center", color=INK, fontsize=9)
        axis.set_xscale("log")
        axis.set_xlim(100, largest * 4)
        axis.set_title(f"{case.workload.heading}, {case.keys:,} keys", loc="left", fontsize=10)
        axis.tick_params(labelsize=9)
        for side in ("top", "right"):
            axis.spines[side].set_visible(False)
    axes[-1, 0].set_xlabel("records per second, steady state (logarithmic)")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=130)
    pyplot.close(figure)
    return True


def _short(rate: float) -> str:
    for limit, unit in ((1e6, "M"), (1e3, "k")):
        if rate >= limit:
            return f"{rate / limit:.3g} {unit}"
    return f"{rate:.0f}"
