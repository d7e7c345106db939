"""How often the job has failed on each record, and which records it skips.

The counts last across restarts, as long as the driver lives. A job that is started again counts
from zero.
"""

from __future__ import annotations

import logging

from tidegate.core.errors import TidegateError, UserFunctionError
from tidegate.core.ids import Attempt
from tidegate.core.poison import PoisonOrders, PoisonRecord
from tidegate.core.setting_groups import RestartSettings
from tidegate.protocol.restart_strategy import restarts_allowed

_log = logging.getLogger("tidegate.job")
_MOST_RECORDS = 100
"""The number of different records whose failures are counted."""


class PoisonCounts:
    """Counts the failures on each record. With `skip_after` None, no record is ever skipped."""

    def __init__(self, skip_after: int | None) -> None:
        self._skip_after = skip_after
        self._failures: dict[PoisonRecord, set[Attempt]] = {}
        self._skips: set[PoisonRecord] = set()
        self._attempts: dict[tuple[str, ...], set[Attempt]] = {}
        """The attempts that failed on each record, by its text in errors."""

    def failed(self, attempt: Attempt, error: TidegateError) -> None:
        """Count a failed attempt, once for each record."""
        if not isinstance(error, UserFunctionError):
            return
        self._count(attempt, error)
        if self._skip_after is None:
            return
        poison = error.poison
        if poison is None or poison in self._skips:
            return
        attempts = self._failures.setdefault(poison, set())
        attempts.add(attempt)
        if len(attempts) >= self._skip_after:
            self._skips.add(poison)
            del self._failures[poison]
            _log.warning(
                "the job has failed %d time(s) on the record %s in operator %r: it is now skipped",
                self._skip_after,
                error.args[3],
                error.args[0],
            )

    def _count(self, attempt: Attempt, error: UserFunctionError) -> None:
        if error.args[3] is None:
            return
        attempts = self._attempts.pop(_shown(error), set())
        self._attempts[_shown(error)] = attempts | {attempt}
        if len(self._attempts) > _MOST_RECORDS:
            del self._attempts[next(iter(self._attempts))]

    def hint(self, error: TidegateError) -> str:
        """A hint, on its own line, for a failure that restarts will not fix; or an empty string.

        A job that skips such records needs no hint.
        """
        if self._skip_after is not None or not isinstance(error, UserFunctionError):
            return ""
        times = len(self._attempts.get(_shown(error), ()))
        if times < 2:
            return ""
        return (
            f"\nThe job has failed on this record {times} times. Correct the code, or skip such "
            "records: env.on_poison_record(), see docs/poison-records.md."
        )

    def orders(self) -> PoisonOrders | None:
        """What the operators of the next attempt skip; None: poison records are not tracked."""
        if self._skip_after is None:
            return None
        return PoisonOrders(frozenset(self._skips), skips_at_once=self._skip_after == 0)


def _shown(error: UserFunctionError) -> tuple[str, ...]:
    """Operator, record and exception."""
    return str(error.args[0]), str(error.args[3]), error.cause


def warn_of_too_few_restarts(settings: RestartSettings, *, checkpointing: bool) -> None:
    """Warn if the job would end before it has failed on a record often enough to skip it."""
    wanted = settings.poison_skip_after or 0
    allowed = restarts_allowed(settings, checkpointing=checkpointing)
    if wanted > allowed:
        _log.warning(
            "a record is skipped when the job has failed on it %d time(s), but the restart "
            "strategy ends the job after %d restart(s): allow at least %d",
            wanted,
            allowed,
            wanted,
        )
