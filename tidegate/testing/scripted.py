"""A source that follows a script, with failures and pauses, and a sink that collects."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from tidegate.connectors.sink import Sink, SinkWriter, WriterContext
from tidegate.connectors.source import (
    Boundedness,
    ReaderContext,
    Source,
    SourceReader,
    SplitEnumerator,
)
from tidegate.connectors.splits import Cursor, KnownSplits, SequentialReader
from tidegate.stream.batch import Batch
from tidegate.types.typeinfo import TypeInformation


@dataclass(frozen=True, slots=True)
class Fail:
    """The reader raises here, in attempts up to `until_attempt`."""

    message: str = "scripted failure"
    until_attempt: int = 1


@dataclass(frozen=True, slots=True)
class Pause:
    """No records for this many seconds after the reader reaches this mark."""

    seconds: float


@dataclass(frozen=True, slots=True)
class End:
    """The input ends here: nothing after this mark is read."""


class ScriptedFailure(Exception):
    """Raised by `Fail`."""


@dataclass(frozen=True, slots=True)
class ScriptSplit:
    """A script and the position in it where reading continues."""

    script: int
    position: int = 0


class ScriptedSource(Source):
    """Every script is a split: its records, interspersed with `Fail`, `Pause` and `End` marks."""

    def __init__(self, *scripts: Sequence[Any], type_info: TypeInformation | None = None) -> None:
        self._scripts = [list(script) for script in scripts]
        self._type = type_info
        if any(isinstance(item, Pause) for script in self._scripts for item in script):
            self.boundedness = Boundedness.CONTINUOUS_UNBOUNDED

    def create_enumerator(self) -> SplitEnumerator:
        count = len(self._scripts)
        return KnownSplits(lambda parallelism: [ScriptSplit(script) for script in range(count)])

    def create_reader(self, context: ReaderContext) -> SourceReader:
        scripts = self._scripts
        return SequentialReader(
            lambda split: _ScriptCursor(scripts[split.script], split, context),
            lambda split: split.script,
        )

    def produced_type(self) -> TypeInformation | None:
        return self._type


class _ScriptCursor(Cursor):
    def __init__(self, script: list[Any], split: ScriptSplit, context: ReaderContext) -> None:
        self._script = script
        self._split = split
        self._context = context
        self._next = split.position
        self._resume_at: float | None = None

    def read(self, max_records: int) -> Batch | None:
        records: list[Any] = []
        while self._next < len(self._script) and len(records) < max_records:
            match self._script[self._next]:
                case Fail(message, until_attempt) if self._context.attempt <= until_attempt:
                    if records:
                        break
                    raise ScriptedFailure(message)
                case Pause(seconds):
                    if not self._has_waited(seconds):
                        break
                case End():
                    self._next = len(self._script)
                    break
                case Fail():
                    pass
                case record:
                    records.append(record)
            self._next += 1
        return Batch.of_records(records, self._context.format) if records else None

    def _has_waited(self, seconds: float) -> bool:
        now = self._context.clock.monotonic()
        if self._resume_at is None:
            self._resume_at = now + seconds
        if now < self._resume_at:
            return False
        self._resume_at = None
        return True

    @property
    def is_done(self) -> bool:
        return self._next >= len(self._script)

    def position(self) -> ScriptSplit:
        return replace(self._split, position=self._next)


_collected: dict[str, list[Any]] = {}


class CollectingSink(Sink):
    """Collects all records; for jobs whose slots run in the process of the test."""

    def __init__(self) -> None:
        self._name = uuid.uuid4().hex
        _collected[self._name] = []

    @property
    def records(self) -> list[Any]:
        """The records of all subtasks, in order of arrival."""
        return _collected[self._name]

    def create_writer(self, context: WriterContext) -> SinkWriter:
        return _CollectingWriter(_collected.setdefault(self._name, []))


class _CollectingWriter(SinkWriter):
    def __init__(self, records: list[Any]) -> None:
        self._records = records

    def write(self, batch: Batch) -> None:
        self._records.extend(batch.records)
