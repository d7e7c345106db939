"""Answers questions about savepoints, one JSON document per line: a process for the dashboard.

State is read in a separate process, so that it costs the driver neither memory nor interpreter
time, and restrictions on loading foreign savepoints apply to this process only.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import PurePath
from typing import Any

from tidegate.checkpoint.layout import METADATA, id_of
from tidegate.checkpoint.locate import open_checkpoint
from tidegate.checkpoint.metadata import CheckpointMetadata
from tidegate.core.errors import NoCheckpoint, TidegateError, UnknownState, UntrustedState, shorten
from tidegate.savepoint.comparing import difference
from tidegate.savepoint.reader import StateReader, state_reader
from tidegate.savepoint.summaries import OperatorSummary
from tidegate.savepoint.trust import untrusted
from tidegate.storage.filesystem import open_store
from tidegate.storage.locations import below, shown
from tidegate.web.documents import states
from tidegate.web.documents.common import NEVER, milliseconds
from tidegate.web.forms import Form, as_document, parsed

_MOST_SAVEPOINTS = 500
_MOST_CHARACTERS = 2000


def main() -> None:
    """Answer until the other side closes the line."""
    browser = Browser()
    for line in sys.stdin:
        print(json.dumps(browser.answer(json.loads(line))), flush=True)


class Browser:
    """Remembers where the last page of entries ended, so that the next one is quick."""

    def __init__(self) -> None:
        self._page: tuple[object, int, Iterator[list[str]]] | None = None

    def answer(self, question: dict[str, Any]) -> dict[str, Any]:
        """The answer, or the status and message of a refusal."""
        try:
            return {"answer": as_document(self._answer(question["what"], question["asked"]))}
        except UntrustedState as error:
            sentence = str(error).replace("pass --trust", "ask again with trust=true")
            return {"status": 403, "sentence": sentence}
        except (NoCheckpoint, UnknownState) as error:
            return {"status": 404, "sentence": str(error)}
        except (TidegateError, OSError, ValueError) as error:
            return {"status": 400, "sentence": str(error) or type(error).__name__}
        except Exception as error:
            # Forged state can make any reader fail.
            return {
                "status": 400,
                "sentence": f"it cannot be read: {type(error).__name__}: {error}",
            }

    def _answer(self, what: str, asked: dict[str, Any]) -> Form:
        match what:
            case "list":
                return found_savepoints(asked["directories"])
            case "contents":
                with untrusted():
                    return contents(state_reader(parsed(states.StateQuery, asked).path))
            case "entries":
                return self._entries(parsed(states.EntriesQuery, asked))
            case _:
                query = parsed(states.DifferenceQuery, asked)
                with untrusted(trust=query.trust):
                    return difference_of(query)

    def _entries(self, query: states.EntriesQuery) -> states.StateEntries:
        with untrusted(trust=query.trust):
            reader = state_reader(query.path)
            is_keyed = _is_keyed(reader, query.operator, query.state)
            wanted = (query.path, query.operator, query.state, query.search, query.trust)
            rows = _rows(reader, query, is_keyed)
            skip = query.offset
            if self._page is not None and self._page[:2] == (wanted, query.offset):
                rows, skip = self._page[2], 0
            self._page = None
            found = list(islice(rows, skip, skip + query.limit))
            more = next(rows, None)
        if more is not None:
            after = query.offset + len(found)
            self._page = (wanted, after, _and_then(more, rows))
        return states.StateEntries(
            columns=["key", "value"] if is_keyed else ["subtask", "element"],
            entries=found,
            offset=query.offset,
            more=more is not None,
        )


def _and_then(first: list[str], rest: Iterator[list[str]]) -> Iterator[list[str]]:
    yield first
    yield from rest


def _is_keyed(reader: StateReader, uid: str, name: str) -> bool:
    wanted = reader.operator(uid).operator_id
    summary = next(each for each in reader.operators() if each.operator_id == wanted)
    return not any(each.name == name and not each.is_keyed for each in summary.states)


def _rows(reader: StateReader, query: states.EntriesQuery, is_keyed: bool) -> Iterator[list[str]]:
    entries: Iterator[tuple[Any, Any]] = (
        reader.entries(query.operator, query.state)
        if is_keyed
        else iter(reader.elements(query.operator, query.state))
    )
    search = (query.search or "").lower()
    for key, value in entries:
        shown_key = shorten(key, _MOST_CHARACTERS)
        if search in shown_key.lower():
            yield [shown_key, shorten(value, _MOST_CHARACTERS)]


def contents(reader: StateReader) -> states.SavepointContents:
    metadata = reader.metadata
    return states.SavepointContents(
        path=shown(reader.path),
        kind=_kind(reader.path),
        id=metadata.checkpoint_id,
        job=metadata.job_name,
        jid=metadata.job_id,
        completed=milliseconds(metadata.completed_at),
        operators=[_operator(each) for each in reader.operators()],
        source_positions=[
            states.PositionEntry(
                uid=each.uid, subtask=each.subtask, split=shorten(each.split, _MOST_CHARACTERS)
            )
            for each in reader.source_positions()
        ],
    )


def _operator(summary: OperatorSummary) -> states.OperatorStates:
    return states.OperatorStates(
        uid=summary.uid,
        id=summary.operator_id,
        name=summary.name,
        parallelism=summary.parallelism,
        max_parallelism=summary.max_parallelism,
        size=summary.size,
        source_splits=summary.source_splits,
        states=[
            states.StateEntry(
                name=each.name,
                kind=each.kind,
                type=each.type,
                keyed=each.is_keyed,
                entries=each.entries,
                size=each.size,
            )
            for each in summary.states
        ],
    )


def difference_of(query: states.DifferenceQuery) -> states.DifferenceDocument:
    found = difference(state_reader(query.before), state_reader(query.after))
    return states.DifferenceDocument(
        operators_added=found.operators_added,
        operators_removed=found.operators_removed,
        operators=[
            states.OperatorDifference(
                label=operator.label,
                states_added=operator.states_added,
                states_removed=operator.states_removed,
                states=[
                    states.StateDifference(
                        name=each.name,
                        added=each.added,
                        removed=each.removed,
                        changed=each.changed,
                        same=each.same,
                        type_before=each.type_before,
                        type_after=each.type_after,
                        examples=each.examples,
                    )
                    for each in operator.states
                ],
            )
            for operator in found.operators
        ],
    )


def found_savepoints(directories: list[str]) -> states.FoundSavepoints:
    """All savepoints and checkpoints in these directories, or in directories of jobs there."""
    paths = {
        below(directory, blob.removesuffix(f"/{METADATA}"))
        for directory in directories
        for blob in open_store(directory).list()
        if blob.endswith(f"/{METADATA}") and blob.count("/") <= 2
    }
    found = [each for each in map(_found, paths) if each is not None]
    found.sort(key=lambda each: -each.completed)
    places = [shown(directory) for directory in directories]
    return states.FoundSavepoints(directories=places, savepoints=found[:_MOST_SAVEPOINTS])


def _found(path: str) -> states.FoundSavepoint | None:
    try:
        metadata = open_checkpoint(path).metadata
    except NoCheckpoint:
        return None  # deleted since the directory was listed
    except TidegateError as error:
        return states.FoundSavepoint(
            path=shown(path),
            kind=_kind(path),
            id=None,
            job=None,
            jid=None,
            completed=NEVER,
            size=None,
            operators=None,
            problem=str(error),
        )
    return states.FoundSavepoint(
        path=shown(path),
        kind=_kind(path),
        id=metadata.checkpoint_id,
        job=metadata.job_name,
        jid=metadata.job_id,
        completed=milliseconds(metadata.completed_at),
        size=_size(metadata),
        operators=len(metadata.operators),
        problem=None,
    )


def _size(metadata: CheckpointMetadata) -> int:
    return sum(
        segment.size
        for record in metadata.operators.values()
        for handle in record.subtasks.values()
        for segment in handle.segments
    )


def _kind(path: str) -> states.SnapshotKind:
    return "savepoint" if id_of(PurePath(path).name) is None else "checkpoint"


if __name__ == "__main__":
    main()
