"""The external system of simulated jobs: transactions that outlive the process preparing them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.sim.clockwork import Killed, Wrong, world
from tidegate.connectors.sink import Committer, CommittingWriter, SupportsCommitter
from tidegate.operators.endpoints.two_phase_commit import TwoPhaseCommitSinkFunction
from tidegate.stream.batch import Batch


@dataclass
class Bank:
    """The external system of one pipeline."""

    pipeline: int
    begun: int = 0
    open: dict[str, list[Any]] = field(default_factory=dict)
    owners: dict[str, Any] = field(default_factory=dict)
    prepared: dict[str, list[Any]] = field(default_factory=dict)
    prepared_by: dict[str, tuple[int, int]] = field(default_factory=dict)
    committed: dict[str, list[Any]] = field(default_factory=dict)
    visible: Counter[Any] = field(default_factory=Counter)
    dropped: list[Any] = field(default_factory=list)
    """Records of prepared transactions that it has ended by itself."""

    def begin(self, name: str | None = None) -> str:
        world().moment("a transaction begins")
        with self.called("begin"):
            self.begun += 1
            transaction = name or f"t{self.pipeline}.{self.begun}"
            self.open[transaction] = []
            self.owners[transaction] = world().sim.current
        return transaction

    def write(self, transaction: str, records: Sequence[Any]) -> None:
        with self.called("write"):
            if transaction not in self.open:
                raise RuntimeError(f"{transaction} is gone")
            self.open[transaction] += records

    def prepare(self, transaction: str) -> None:
        world().moment("a transaction is prepared")
        with self.called("prepare"):
            self.prepared[transaction] = self.open.pop(transaction)
            self.prepared_by[transaction] = world().checks.prepares(self.pipeline)

    def commit(self, transaction: str, also: Callable[[], None] = lambda: None) -> None:
        world().moment("a transaction is committed")
        with self.called("commit"):
            if transaction in self.committed:
                return
            if transaction not in self.prepared:
                raise Wrong(f"{transaction} is to be committed but was aborted")
            records = self.prepared.pop(transaction)
            self.committed[transaction] = records
            world().checks.commits(self, transaction, records)
            self.visible.update(records)
            also()

    def abort(self, transaction: str) -> None:
        with self.called("abort"):
            self.open.pop(transaction, None)
            self.prepared.pop(transaction, None)

    def lost(self, process: Any) -> None:
        """Discard the open transactions of a process that died."""
        for transaction in [t for t in self.open if self.owners[t] is process]:
            del self.open[transaction]

    def crash(self, processes: Sequence[Any]) -> None:
        """The machine of these processes crashes: what it has not stored durably is lost."""

    @property
    def settled(self) -> set[Any]:
        """The records that are committed, prepared, or were so until the system dropped them."""
        transactions = [*self.prepared.values(), *self.committed.values(), self.dropped]
        return {record for records in transactions for record in records}

    def restart(self, seconds: float) -> None:
        """Its servers change, or are gone for so long."""

    def time_out(self, which: int) -> None:
        """It ends a transaction by itself."""

    def is_lost(self, name: str) -> bool:
        """Whether it has ended a transaction that was prepared under this name."""
        return False

    def called(self, what: str, *, acts: bool = True) -> Any:
        failure = self.failure_of(what)
        return world().outside(f"bank {self.pipeline}", what, "bank", failure, acts=acts)

    def failure_of(self, what: str) -> Exception:
        return RuntimeError(f"the bank does not answer to {what}")


class Server(Bank):
    """A system with rules of its own, which hold even for a process that has been replaced.

    A process may sleep right before it writes or commits, and do so when it wakes up.
    """

    def called(self, what: str, *, acts: bool = True) -> Any:
        is_guarded = what in ("write", "prepare", "commit")
        process: Any = world().sim.current
        if is_guarded and process is not None and process.dozes and world().sim.chance(0.3):
            process.doze()
        return super().called(what, acts=acts and not is_guarded)


def at_moment(name: str, act: Callable[[], Any]) -> None:
    """Who dies here may have asked for it already."""
    try:
        world().moment(name)
    except Killed:
        if world().sim.chance(0.5):
            try:
                act()
            except Exception as refusal:
                world().sim.note(f"    nobody hears of {refusal!r}")
        raise


def bank(pipeline: int) -> Bank:
    return world().banks[pipeline]


class Transfers(TwoPhaseCommitSinkFunction):
    """A sink function with transactions."""

    def __init__(self, pipeline: int) -> None:
        self._pipeline = pipeline

    def begin_transaction(self) -> str:
        return bank(self._pipeline).begin()

    def invoke(self, transaction: str, value: Any, context: Any) -> None:
        bank(self._pipeline).write(transaction, [value])

    def pre_commit(self, transaction: str) -> None:
        bank(self._pipeline).prepare(transaction)

    def commit(self, transaction: str) -> None:
        bank(self._pipeline).commit(transaction)

    def abort(self, transaction: str) -> None:
        bank(self._pipeline).abort(transaction)


class Account(SupportsCommitter):
    """A sink whose writers prepare, and whose committers commit."""

    def __init__(self, pipeline: int) -> None:
        self._pipeline = pipeline

    def create_writer(self, context: Any) -> CommittingWriter:
        return Clerk(bank(self._pipeline), context)

    def create_committer(self, context: Any) -> Committer:
        return Cashier(bank(self._pipeline))


class Clerk(CommittingWriter):
    def __init__(self, bank: Bank, context: Any) -> None:
        self._bank = bank
        for lost in sorted(bank.prepared.keys() - set(context.recovered)):
            context.permit.require()
            bank.abort(lost)
        self._transaction = bank.begin()

    def write(self, batch: Batch) -> None:
        self._bank.write(self._transaction, batch.records)

    def prepare_commit(self) -> list[str]:
        prepared = self._transaction
        self._bank.prepare(prepared)
        self._transaction = self._bank.begin()
        return [prepared]


class Cashier(Committer):
    def __init__(self, bank: Bank) -> None:
        self._bank = bank

    def commit(self, committables: Sequence[str]) -> None:
        for each in committables:
            self._bank.commit(each)
