"""An external system with transactions, for exactly-once sinks."""

from __future__ import annotations

import uuid
from typing import Any

from tidegate.datastream.functions import TwoPhaseCommitSinkFunction


class Ledger:
    """Transactions of one program, in the memory of this process."""

    ledgers: dict[str, Ledger] = {}  # noqa: RUF012 - slots find theirs by its name

    def __init__(self, name: str) -> None:
        self.open: dict[str, list[str]] = {}
        self.prepared: dict[str, list[str]] = {}
        self.committed: dict[str, list[str]] = {}
        self.ledgers[name] = self


class Transfers(TwoPhaseCommitSinkFunction):
    def __init__(self, ledger: str) -> None:
        self._ledger = ledger

    @property
    def ledger(self) -> Ledger:
        return Ledger.ledgers[self._ledger]

    def begin_transaction(self) -> str:
        transaction = uuid.uuid4().hex
        self.ledger.open[transaction] = []
        return transaction

    def invoke(self, transaction: str, value: str, context: Any) -> None:
        self.ledger.open[transaction].append(value)

    def pre_commit(self, transaction: str) -> None:
        self.ledger.prepared[transaction] = self.ledger.open.pop(transaction)

    def commit(self, transaction: str) -> None:
        if transaction not in self.ledger.committed:
            self.ledger.committed[transaction] = self.ledger.prepared.pop(transaction)

    def abort(self, transaction: str) -> None:
        self.ledger.open.pop(transaction, None)
        self.ledger.prepared.pop(transaction, None)
