"""State as data: read, edit and create the state of savepoints and checkpoints."""

from tidegate.checkpoint.savepoints import dispose as dispose_savepoint
from tidegate.savepoint.reader import StateReader, state_reader
from tidegate.savepoint.summaries import OperatorSummary, SourcePosition, StateSummary
from tidegate.savepoint.writer import StateWriter, state_writer

__all__ = [
    "OperatorSummary",
    "SourcePosition",
    "StateReader",
    "StateSummary",
    "StateWriter",
    "dispose_savepoint",
    "state_reader",
    "state_writer",
]
