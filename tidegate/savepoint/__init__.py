"""State as data: the state of savepoints and checkpoints read, changed, and made from tables."""

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
