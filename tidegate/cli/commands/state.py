"""``tidegate state``: shows and compares savepoints and checkpoints."""

from __future__ import annotations

from itertools import islice
from pathlib import PurePath
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tidegate.cli.jobs import AsJson, print_json, print_table, printable

if TYPE_CHECKING:
    from tidegate.savepoint.comparing import SavepointDifference
    from tidegate.savepoint.reader import StateReader
    from tidegate.savepoint.summaries import OperatorSummary, StateSummary

DIFFERENT = 1
"""The exit code of `diff` if there is a difference."""

state = typer.Typer(help="Show and compare savepoints and checkpoints.", no_args_is_help=True)

Place = Annotated[
    str,
    typer.Argument(
        metavar="PATH", help="A savepoint, a checkpoint, or the directory of a job (its latest)."
    ),
]


Trust = Annotated[
    bool,
    typer.Option(
        "--trust",
        help="Load pickled objects, which can run code: only if you trust the author.",
    ),
]


@state.command()
def show(
    path: Place,
    uid: Annotated[
        str | None, typer.Option("--uid", metavar="UID", help="Only this operator, by uid or id.")
    ] = None,
    name: Annotated[
        str | None, typer.Option("--state", metavar="NAME", help="Show the entries of this state.")
    ] = None,
    limit: Annotated[
        int, typer.Option("--limit", min=0, metavar="N", help="How many entries to show.")
    ] = 20,
    trust: Trust = False,
    as_json: AsJson = False,
) -> None:
    """Show the operators and states of a savepoint or checkpoint, or the entries of one state.

    Example: tidegate state show savepoints/savepoint-5f0c2a-1 --uid counts --state total
    """
    from tidegate.savepoint.reader import state_reader
    from tidegate.savepoint.trust import untrusted

    if name is not None and uid is None:
        raise typer.BadParameter("name the operator with --uid", param_hint="--state")
    with untrusted(trust=trust):
        _show(state_reader(path), uid, name, limit, as_json)


def _show(
    reader: StateReader, uid: str | None, name: str | None, limit: int, as_json: bool
) -> None:
    if uid is not None and name is not None:
        _show_entries(reader, uid, name, limit, as_json)
        return
    operators = reader.operators()
    if uid is not None:
        wanted = reader.operator(uid).operator_id
        operators = [each for each in operators if each.operator_id == wanted]
    positions = [each for each in reader.source_positions() if uid in (None, each.uid)]
    if as_json:
        splits = [
            {"uid": each.uid, "subtask": each.subtask, "split": repr(each.split)}
            for each in positions
        ]
        described = [_described(operator) for operator in operators]
        print_json({**_head(reader), "operators": described, "source-positions": splits})
        return
    facts = _head(reader)
    kind = "checkpoint" if PurePath(facts["path"]).name == f"chk-{facts['id']}" else "savepoint"
    typer.echo(printable(f"{facts['path']}: {kind} {facts['id']} of job {facts['job']!r}"))
    print_table(
        ("operator", "name", "parallelism", "state", "kind", "type", "entries", "bytes"),
        [row for operator in operators for row in _rows(operator)],
    )
    for each in positions:
        typer.echo(printable(f"{each.uid}, reader {each.subtask}: {each.split!r}"))


@state.command()
def diff(
    before: Annotated[str, typer.Argument(metavar="A", help="A savepoint or checkpoint.")],
    after: Annotated[str, typer.Argument(metavar="B", help="Another one.")],
    trust: Trust = False,
    as_json: AsJson = False,
) -> None:
    """Show the differences between A and B; the exit code is 1 if there are any.

    Example: tidegate state diff savepoints/before savepoints/after
    """
    from tidegate.savepoint.comparing import difference
    from tidegate.savepoint.reader import state_reader
    from tidegate.savepoint.trust import untrusted

    with untrusted(trust=trust):
        found = difference(state_reader(before), state_reader(after))
    if as_json:
        from dataclasses import asdict

        print_json(asdict(found))
    else:
        for line in _lines(found):
            typer.echo(printable(line))
    if not found.is_empty:
        raise typer.Exit(DIFFERENT)


def _show_entries(reader: StateReader, uid: str, name: str, limit: int, as_json: bool) -> None:
    wanted = reader.operator(uid).operator_id
    summary = next(each for each in reader.operators() if each.operator_id == wanted)
    is_operator_state = any(each.name == name and not each.is_keyed for each in summary.states)
    if is_operator_state:
        columns = ("subtask", "element")
        found: list[tuple[Any, Any]] = list(reader.elements(uid, name)[: limit + 1])
    else:
        columns = ("key", "value")
        found = list(islice(reader.entries(uid, name), limit + 1))
    shown = found[:limit]
    if as_json:
        entries = [{columns[0]: repr(one), columns[1]: repr(other)} for one, other in shown]
        print_json({"entries": entries, "has-more": len(found) > limit})
        return
    print_table(columns, [(repr(one), repr(other)) for one, other in shown])
    if len(found) > limit:
        typer.echo(f"… the first {limit}; more with --limit")


def _head(reader: StateReader) -> dict[str, Any]:
    metadata = reader.metadata
    return {
        "path": reader.path,
        "job": metadata.job_name,
        "job-id": metadata.job_id,
        "kind": metadata.kind.name.lower(),
        "id": metadata.checkpoint_id,
        "completed": metadata.completed_at,
    }


def _rows(operator: OperatorSummary) -> list[tuple[str, ...]]:
    own = (operator.label, operator.name, f"{operator.parallelism} of {operator.max_parallelism}")
    if not operator.states:
        return [(*own, "-", "-", "-", "-", "-")]
    rows = [_columns(each) for each in operator.states]
    return [
        (*(own if number == 0 else ("", "", "")), *columns) for number, columns in enumerate(rows)
    ]


def _columns(summary: StateSummary) -> tuple[str, ...]:
    entries, size = (
        "?" if number is None else f"{number:,}" for number in (summary.entries, summary.size)
    )
    return summary.name, summary.kind, summary.type, entries, size


def _described(operator: OperatorSummary) -> dict[str, Any]:
    from dataclasses import asdict

    return asdict(operator)


def _lines(found: SavepointDifference) -> list[str]:
    if found.is_empty:
        return ["They have the same state."]
    lines = [f"- operator {label}" for label in found.operators_removed]
    lines += [f"+ operator {label}" for label in found.operators_added]
    for operator in found.operators:
        lines.append(f"operator {operator.label}")
        lines += [f"  - state {name}" for name in operator.states_removed]
        lines += [f"  + state {name}" for name in operator.states_added]
        for change in operator.states:
            counts = (
                f"{change.added:,} added, {change.removed:,} removed, {change.changed:,} changed"
            )
            lines.append(f"  state {change.name}: {counts}, {change.same:,} the same")
            if change.type_before is not None:
                lines.append(f"    {change.type_before} → {change.type_after}")
            lines += [f"    {example}" for example in change.examples]
    return lines
