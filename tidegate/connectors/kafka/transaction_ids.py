"""Which transactional ids a subtask uses, and when it may reuse one."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum, auto

from tidegate.core.ids import CheckpointId


@dataclass(frozen=True, slots=True)
class TransactionalIdNames:
    """Builds ids like `prefix-job-operator-subtask-number`."""

    prefix: str
    job_id: str
    operator_id: str

    @property
    def common(self) -> str:
        """The common prefix of all subtasks."""
        return f"{self.prefix}-{self.job_id}-{self.operator_id}-"

    def name(self, subtask: int, number: int) -> str:
        return f"{self.common}{subtask}-{number}"

    def subtask_of(self, transactional_id: str) -> int | None:
        """The subtask of an id; None if it is not one of these ids."""
        subtask, separator, number = transactional_id.removeprefix(self.common).partition("-")
        is_one = transactional_id.startswith(self.common) and separator
        return int(subtask) if is_one and subtask.isdigit() and number.isdigit() else None


class _Use(Enum):
    TAKEN = auto()
    """By a transaction that no checkpoint references yet."""
    PREPARED = auto()
    """By a transaction of a checkpoint that is not complete yet."""
    RESTING = auto()
    """Committed. After a failure it is committed again, so it must stay unchanged."""


class TransactionalIds:
    """The ids of one subtask: as few as its concurrent transactions need.

    A reused id keeps its producer id at the brokers and gets a new epoch, so their memory does not
    grow with every checkpoint.
    """

    def __init__(self, names: TransactionalIdNames, subtask: int, resting: Iterable[str]) -> None:
        self._names = names
        self._subtask = subtask
        self._uses: dict[str, tuple[_Use, CheckpointId]] = {
            each: (_Use.RESTING, CheckpointId(0)) for each in resting
        }

    def take(self) -> str:
        candidates = (self._names.name(self._subtask, number) for number in itertools.count())
        free = next(each for each in candidates if each not in self._uses)
        self._uses[free] = (_Use.TAKEN, CheckpointId(0))
        return free

    def prepared(self, transactional_id: str, checkpoint_id: CheckpointId) -> None:
        self._uses[transactional_id] = (_Use.PREPARED, checkpoint_id)

    def complete(self, checkpoint_id: CheckpointId) -> list[str]:
        """Note that no restore goes back before this checkpoint.

        Returns:
            The ids whose transactions it commits.
        """
        committed = []
        for each, (use, since) in list(self._uses.items()):
            if use is _Use.PREPARED and since <= checkpoint_id:
                self._uses[each] = (_Use.RESTING, checkpoint_id)
                committed.append(each)
            elif use is _Use.RESTING and since < checkpoint_id:
                del self._uses[each]
        return committed
