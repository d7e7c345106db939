"""The record of all kills: a line for each, a table and a chart of all."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tests.kills.job import EXACT


@dataclass(frozen=True, slots=True)
class Entry:
    """A kill and the outcome of its job."""

    commit: str
    seed: int
    case: int
    program: str
    settings: dict[str, Any]
    fault: str
    outcome: str
    lost: int
    doubled: int
    seconds: float
    """Its share of the duration of the job."""
    actions: list[str]
    notes: list[str]


def read(path: Path) -> list[Entry]:
    lines = path.read_text().splitlines() if path.exists() else []
    return [Entry(**json.loads(line)) for line in lines]


def append(path: Path, entries: Iterable[Entry]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        for entry in entries:
            file.write(json.dumps(asdict(entry)) + "\n")


def table(entries: list[Entry]) -> str:
    """Kills by fault and program, as Markdown."""
    programs = sorted({entry.program for entry in entries})
    kills = Counter((entry.fault, entry.program) for entry in entries)
    heads = [program.replace("_", " to ") for program in programs]
    rows = [f"| killed | {' | '.join(heads)} | all |", f"|---|{'---|' * (len(programs) + 1)}"]
    for fault in _faults(entries):
        cells = [str(kills[fault, program] or "") for program in programs]
        total = sum(kills[fault, program] for program in programs)
        rows.append(f"| {fault} | {' | '.join(cells)} | {total} |")
    sums = [str(sum(entry.program == program for entry in entries)) for program in programs]
    rows.append(f"| all | {' | '.join(sums)} | {len(entries)} |")
    return "\n".join(rows)


def summary(entries: list[Entry]) -> str:
    cases = {(entry.seed, entry.case): entry for entry in entries}
    outcomes = Counter(entry.outcome for entry in cases.values())
    told = ", ".join(f"{count} {outcome}" for outcome, count in outcomes.most_common())
    lost = sum(entry.lost for entry in cases.values())
    doubled = sum(entry.doubled for entry in cases.values())
    kills = f"{len(entries)} kills in {len(cases)} jobs ({told})"
    return f"{kills}: {lost} records lost, {doubled} doubled"


def _faults(entries: list[Entry]) -> list[str]:
    return [fault for fault, _ in Counter(entry.fault for entry in entries).most_common()]


_ROW, _LEFT, _WIDTH = 22, 300, 420
_GOOD, _BAD, _TEXT = "#2f7d5b", "#b3261e", "#57606a"


def chart(entries: list[Entry]) -> str:
    """Kills by fault as bars, as SVG: those of jobs that ended right, and others."""
    faults = _faults(entries)
    counts = Counter((entry.fault, entry.outcome == EXACT) for entry in entries)
    scale = _WIDTH / max(counts[fault, True] + counts[fault, False] for fault in faults)
    height = _ROW * len(faults) + 44
    commits = ", ".join(sorted({entry.commit for entry in entries}))
    box = f'viewBox="0 0 {_LEFT + _WIDTH + 60} {height}"'
    font = 'font-family="system-ui, sans-serif" font-size="13"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {box} {font} role="img">',
        f"<title>{summary(entries)}</title>",
        f'<text x="0" y="16" fill="{_TEXT}">{len(entries)} kills at {commits}</text>',
    ]
    for index, fault in enumerate(faults):
        top, left = 30 + index * _ROW, float(_LEFT)
        label = f'y="{top + 14}" fill="{_TEXT}"'
        parts.append(f'<text x="{_LEFT - 8}" {label} text-anchor="end">{fault}</text>')
        for is_good, colour in ((True, _GOOD), (False, _BAD)):
            width = counts[fault, is_good] * scale
            if width:
                shape = f'x="{left:.1f}" y="{top + 2}" width="{width:.1f}" height="{_ROW - 6}"'
                parts.append(f'<rect {shape} fill="{colour}"/>')
            left += width
        total = counts[fault, True] + counts[fault, False]
        parts.append(f'<text x="{left + 6:.1f}" {label}>{total}</text>')
    return "\n".join([*parts, "</svg>"]) + "\n"
