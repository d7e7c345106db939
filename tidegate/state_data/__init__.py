"""State as data: the state of savepoints and checkpoints read, changed, and made from tables."""

from tidegate.checkpoint.savepoints import dispose as dispose_savepoint
from tidegate.state_data.reader import StateReader, state_reader
from tidegate.state_data.summaries import OperatorSummary, SourcePosition, StateSummary
from tidegate.state_data.writer import StateWriter, state_writer

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
