"""Bugs that show when executors are lost, machines crash, or requests arrive late."""

from __future__ import annotations

from typing import Any

from tests.sim.bugs.planting import bug, instead, section
from tests.sim.plans import BETWEEN_LEVELS
from tidegate.connectors.files.part_files import PartCommitter, _OpenPart
from tidegate.connectors.kafka.transaction_log import TransactionFate
from tidegate.connectors.kafka.transactions import BrokerTransactions
from tidegate.protocol.units import WorkUnits


def _unsynced(original: Any) -> Any:
    def finish(self: Any) -> Any:
        self._encoder.finish()
        self._stream.close()
        return self.file

    return finish


def _renamed_only(original: Any) -> Any:
    def commit(self: Any, committables: Any) -> None:
        for file in committables:
            self._commit(file)

    return commit


def _own_directory_only(original: Any) -> Any:
    def finish(self: Any) -> Any:
        self._directories = self._directories[:1]
        return original(self)

    return finish


section(
    "a machine crashes",
    moments=("metadata is created", "a completion arrives", "slot between pre-commit and commit"),
    sink="files",
    interval=300,
    faults=3,
)
bug("a file is prepared before it is on the disk", (_OpenPart, "finish", _unsynced))
bug("a rename is committed before it is on the disk", (PartCommitter, "commit", _renamed_only))
bug(
    "a file is prepared before its directory is on the disk",
    (_OpenPart, "finish", _own_directory_only),
)


def _forgets_lower_levels(original: Any) -> Any:
    def complete(self: Any, key: Any, packets: Any) -> Any:
        found = original(self, key, packets)
        for level in [level for level in self._answers if level < key.level]:
            del self._answers[level]
        return found

    return complete


section(f"lose an executor @ {BETWEEN_LEVELS}", exchange="jobs")
bug(
    "answers are forgotten when the next level runs",
    (WorkUnits, "complete", _forgets_lower_levels),
    width=2,
    faults=6,
    twins=0.0,
)

section(
    "the bank fails @ a transaction begins",
    "kill a slot @ a transaction begins",
    "kill a slot @ a leftover is aborted",
    moments=(),
    sink="kafka",
    interval=300,
    faults=6,
)
bug(
    "a transaction whose id a late request has taken over counts as committed",
    (BrokerTransactions, "_fate", instead(TransactionFate.COMMITTED)),
)
