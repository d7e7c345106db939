"""A PostgreSQL server for the real sink: sessions that end late, and prepared transactions.

A connection that breaks may have brought its statement to the server, which then runs it, at once
or some time later: until it does, or somebody ends it, its session is there.
"""

from __future__ import annotations

import re
from ast import literal_eval
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import psycopg
from psycopg import sql

from tests.sim.bank import Server, at_moment
from tests.sim.clockwork import world
from tidegate.connectors.postgres.sink import PostgresSink
from tidegate.operators.endpoints.operators import SinkOperator
from tidegate.stream.batch import Batch

_LINGERS = 0.3
"""Seconds, typically, until the server notices that nobody is at the other end."""


def postgres_sink(pipeline: int) -> PostgresSink:
    return PostgresSink(f"host=simulated port={5000 + pipeline} dbname=results", "results")


class TextSinkOperator(SinkOperator):
    """Its table has one column: records of any length fit into it as text."""

    def process(self, batch: Batch, input_index: int = 0) -> None:
        super().process(Batch.of_records(list(map(repr, batch.records))), input_index)


def connect(*, port: str, application_name: str, **settings: Any) -> Connection:
    """What `psycopg.connect` is to the sink."""
    server = world().banks[int(port) - 5000]
    assert isinstance(server, Postgres)
    with server.called("look", acts=False):
        if world().sim.now < server.down_until:
            raise psycopg.OperationalError("the server is starting up")
        return Connection(server, server.open_session(application_name))


class _Broken(psycopg.OperationalError):
    """A connection ends before the answer has come."""


@dataclass(eq=False)
class Backend:
    """A session, as the server knows it."""

    pid: int
    name: str
    process: Any
    transaction: str | None = None
    has_failed: bool = False
    """Then its transaction takes nothing any more, and a PREPARE rolls it back."""
    is_gone: bool = False


@dataclass
class Postgres(Server):
    """The database that one pipeline writes to."""

    down_until: float = 0.0
    backends: dict[int, Backend] = field(default_factory=dict)
    fates: dict[int, str] = field(default_factory=dict)
    """Of transactions, by their numbers, as the server would tell them."""
    numbers: dict[str, int] = field(default_factory=dict)
    busy: dict[str, Backend] = field(default_factory=dict)
    """Prepared transactions that a session is about to commit."""
    rolled_back_by_others: set[str] = field(default_factory=set)

    # --- what befalls it --------------------------------------------------------------------

    def restart(self, seconds: float) -> None:
        self.down_until = world().sim.now + seconds
        for backend in list(self.backends.values()):
            self.end_session(backend)

    def time_out(self, which: int) -> None:
        """Somebody ends a session, or rolls back what is prepared."""
        writing = [each for each in self.backends.values() if each.transaction is not None]
        prepared = [name for name in sorted(self.prepared) if not self.is_busy(name)]
        candidates: list[Any] = [*writing, *prepared]
        if not candidates:
            return
        found = candidates[which % len(candidates)]
        if isinstance(found, Backend):
            self.end_session(found)
        else:
            self.rolled_back_by_others.add(found)
            self.dropped += self.prepared[found]
            self.roll_back_prepared(found)

    def lost(self, process: Any) -> None:
        for backend in [each for each in self.backends.values() if each.process is process]:
            self.end_soon(backend)

    def is_lost(self, name: str) -> bool:
        return name in self.rolled_back_by_others

    def failure_of(self, what: str) -> Exception:
        if what == "write" and world().sim.chance(0.5):
            return psycopg.errors.DiskFull("no space for a row")
        return _Broken(f"the connection is lost while it is to {what}")

    # --- sessions ---------------------------------------------------------------------------

    def open_session(self, name: str) -> Backend:
        self.begun += 1
        backend = Backend(self.begun, name, world().sim.current)
        self.backends[backend.pid] = backend
        return backend

    def end_soon(self, backend: Backend) -> None:
        sim = world().sim
        sim.later(sim.delay(_LINGERS), "a session ends", lambda: self.end_session(backend))

    def end_session(self, backend: Backend) -> None:
        """What it has begun and not prepared is rolled back."""
        if not backend.is_gone:
            backend.is_gone = True
            del self.backends[backend.pid]
            self._roll_back(backend)

    def _roll_back(self, backend: Backend) -> None:
        if backend.transaction is not None:
            self.open.pop(backend.transaction)
            self.fates[self.numbers[backend.transaction]] = "aborted"
            backend.transaction = None
            backend.has_failed = False

    # --- transactions -----------------------------------------------------------------------

    def number(self, backend: Backend) -> int:
        number = len(self.fates) + 1
        backend.transaction = f"x{number}"
        self.fates[number] = "in progress"
        self.numbers[backend.transaction] = number
        self.open[backend.transaction] = []
        self.owners[backend.transaction] = backend.process
        return number

    def write_rows(self, backend: Backend, rows: Sequence[Sequence[str]]) -> None:
        if backend.transaction is None or backend.has_failed:
            raise psycopg.errors.InFailedSqlTransaction("it takes nothing any more")
        self.open[backend.transaction] += [literal_eval(line) for (line,) in rows]

    def prepare_as(self, backend: Backend, name: str, attempt: tuple[int, int]) -> str:
        transaction = backend.transaction
        assert transaction is not None
        if backend.has_failed:
            self._roll_back(backend)
            return "ROLLBACK"
        if name in self.prepared:
            self._roll_back(backend)
            raise psycopg.errors.DuplicateObject(f"{name} is in use")
        self.prepared[name] = self.open.pop(transaction)
        self.prepared_by[name] = attempt
        self.numbers[name] = self.numbers[transaction]
        backend.transaction = None
        return "PREPARE TRANSACTION"

    def commit_prepared(self, name: str) -> str:
        self._require_prepared(name)
        records = self.committed[name] = self.prepared.pop(name)
        self.fates[self.numbers[name]] = "committed"
        world().checks.commits(self, name, records)
        self.visible.update(records)
        return "COMMIT PREPARED"

    def roll_back_prepared(self, name: str) -> str:
        self._require_prepared(name)
        del self.prepared[name]
        self.fates[self.numbers[name]] = "aborted"
        return "ROLLBACK PREPARED"

    def _require_prepared(self, name: str) -> None:
        if self.is_busy(name):
            raise psycopg.errors.ObjectNotInPrerequisiteState(f"{name} is busy")
        if name not in self.prepared:
            raise psycopg.errors.UndefinedObject(f"{name} does not exist")

    def is_busy(self, name: str) -> bool:
        return name in self.busy and not self.busy[name].is_gone

    def status(self, number: int) -> str:
        if number not in self.fates:
            raise psycopg.errors.InvalidParameterValue("it is in the future")
        return self.fates[number]


class Connection:
    """As much of psycopg's as the sink uses."""

    def __init__(self, server: Postgres, backend: Backend) -> None:
        self._server, self._backend = server, backend
        self._is_closed = False

    def execute(
        self, statement: str | bytes | sql.Composed, values: Sequence[Any] | None = None
    ) -> Any:
        text = statement.as_string(None) if isinstance(statement, sql.Composed) else statement
        text = text.decode() if isinstance(text, bytes) else text
        run, found = next(
            (run, found)
            for pattern, run in _STATEMENTS
            if (found := pattern.search(text)) is not None
        )
        answer = run(self, *found.groups(), *(values or ()))
        if isinstance(answer, str):
            return SimpleNamespace(statusmessage=answer)
        return SimpleNamespace(statusmessage="", fetchall=lambda: answer)

    def cursor(self) -> Connection:
        return self

    def copy(self, statement: Any) -> Copy:
        return Copy(self)

    def close(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            self._server.end_soon(self._backend)

    def begin(self) -> str:
        def begin() -> str:
            return "BEGIN"

        at_moment("a transaction begins", begin)
        return self._ask("begin", begin)

    def number(self) -> list[Any]:
        return self._ask("begin", lambda: [(self._server.number(self._backend),)])

    def write(self, rows: Sequence[Sequence[str]]) -> None:
        self._ask("write", lambda: self._server.write_rows(self._backend, rows))

    def prepare(self, name: str) -> str:
        attempt = world().checks.prepares(self._server.pipeline)

        def prepare() -> str:
            return self._server.prepare_as(self._backend, name, attempt)

        at_moment("a transaction is prepared", prepare)
        return self._ask("prepare", prepare, self._later(prepare))

    def commit_prepared(self, name: str) -> str:
        server = self._server

        def commit() -> str:
            return server.commit_prepared(name)

        def commit_later() -> None:
            if name in server.prepared and not server.is_busy(name):
                server.busy[name] = self._backend
                self._later(lambda: (server.busy.pop(name), commit()))()

        at_moment("a transaction is committed", commit)
        return self._ask("commit", commit, commit_later)

    def roll_back_prepared(self, name: str) -> str:
        def roll_back() -> str:
            return self._server.roll_back_prepared(name)

        at_moment("a leftover is aborted", roll_back)
        return self._ask("abort", roll_back)

    def end_other(self, pid: int) -> list[Any]:
        """A session ends some time after it was told so."""
        others = self._server.backends

        def end() -> list[Any]:
            if pid in others:
                self._server.end_soon(others[pid])
            return [(True,)]

        at_moment("a leftover is aborted", end)
        return self._ask("abort", end)

    def sessions(self) -> list[Any]:
        others = self._server.backends.values()
        return self._look(lambda: [(e.pid, e.name) for e in others if e is not self._backend])

    def prepared(self, length: int, prefix: str) -> list[Any]:
        return self._look(
            lambda: [(name,) for name in sorted(self._server.prepared) if name.startswith(prefix)]
        )

    def status(self, number: int) -> list[Any]:
        return self._look(lambda: [(self._server.status(number),)])

    def fixed(self, *row: Any) -> list[Any]:
        return self._look(lambda: [row])

    def _look(self, act: Callable[[], list[Any]]) -> list[Any]:
        found: list[Any] = self._ask("look", act)
        return found

    def _ask(
        self, what: str, act: Callable[[], Any], late: Callable[[], None] = lambda: None
    ) -> Any:
        """A statement; if the connection breaks, it may be run late."""
        if self._is_closed:
            raise psycopg.OperationalError("the connection is closed")
        if self._backend.is_gone:
            self._is_closed = True
            raise psycopg.errors.AdminShutdown("the session was ended")
        is_run = False
        try:
            with self._server.called(what, acts=what != "look"):
                is_run = True
                return act()
        except psycopg.errors.DiskFull:
            self._backend.has_failed = True
            raise
        except _Broken:
            self.close()
            if not is_run and world().sim.chance(0.5):
                late()
            raise

    def _later(self, act: Callable[[], Any]) -> Callable[[], None]:
        sim, backend = world().sim, self._backend

        def run() -> None:
            if not backend.is_gone:
                act()

        return lambda: (sim.later(sim.delay(_LINGERS), "a statement is run late", run), None)[-1]


class Copy:
    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._rows: list[Sequence[str]] = []

    def __enter__(self) -> Copy:
        return self

    def write_row(self, row: Sequence[str]) -> None:
        self._rows.append(row)

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if error is None:
            self._connection.write(self._rows)


_STATEMENTS: tuple[tuple[re.Pattern[str], Callable[..., Any]], ...] = tuple(
    (re.compile(pattern), run)
    for pattern, run in (
        (r"^BEGIN$", Connection.begin),
        (r"txid_current\(\)", Connection.number),
        (r"^PREPARE TRANSACTION '(.*)'", Connection.prepare),
        (r"^COMMIT PREPARED '(.*)'", Connection.commit_prepared),
        (r"^ROLLBACK PREPARED '(.*)'", Connection.roll_back_prepared),
        (r"pg_stat_activity", Connection.sessions),
        (r"pg_terminate_backend", Connection.end_other),
        (r"pg_prepared_xacts", Connection.prepared),
        (r"txid_status", Connection.status),
        (r"set_config", lambda self, name, value: self.fixed(value)),
        (r"max_prepared_transactions", lambda self: self.fixed("100")),
        (r"FROM pg_class", lambda self, name: self.fixed(1, "public", name)),
        (
            r"FROM pg_attribute",
            lambda self, table: self.fixed("line", "text", "text", None, True, False),
        ),
        (r"FROM pg_index", lambda self, table: self.fixed(["line"], None)),
    )
)
PATCHES = ((psycopg, "connect", connect),)
