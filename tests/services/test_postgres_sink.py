"""Rows in PostgreSQL, each of them once, whatever fails."""

import os
import pickle
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import pytest

pytest.importorskip("psycopg")

import psycopg

from services import postgres as service
from services.ports import free_ports
from tests.failing import FAILURES, FailsBehindCheckpoints
from tests.programs import wait_until
from tidegate.common import RestartStrategies, Types
from tidegate.connectors.postgres.transactions import TransactionNames
from tidegate.core.errors import (
    DatabaseFailed,
    LeaseEnded,
    TransactionLost,
    UnsuitableServer,
)
from tidegate.datastream import MapFunction
from tidegate.datastream.connectors.postgres import PostgresSink
from tidegate.operators.endpoints.operators import SinkOperator
from tidegate.testing.environments import mini_environment
from tidegate.testing.harness import OperatorHarness
from tidegate.types.arrow import arrow_format

LAST = 600
NUMBERS = Types.ROW_NAMED(["n", "square"], [Types.LONG(), Types.LONG()])
CREATE = "CREATE TABLE numbers (n bigint NOT NULL, square bigint)"
EXPECTED = list(range(1, LAST + 1))


def connect(dsn):
    return psycopg.connect(dsn, autocommit=True)


def with_table(dsn):
    with connect(dsn) as database:
        database.execute(CREATE)
    return dsn


@pytest.fixture
def database(postgres):
    """A database with an empty table of numbers."""
    return with_table(postgres)


def rows(dsn):
    with connect(dsn) as database:
        return [n for (n,) in database.execute("SELECT n FROM numbers ORDER BY n").fetchall()]


def prepared(dsn):
    """The transactions of the database that wait for their commit."""
    with connect(dsn) as database:
        return sorted(
            gid
            for (gid,) in database.execute(
                "SELECT gid FROM pg_prepared_xacts WHERE database = current_database()"
            ).fetchall()
        )


@pytest.fixture
def own_server():
    """Starts a server that a test may restart: ``own_server(max_prepared_transactions=0)``."""
    missing = service.lacks()
    if missing is not None:
        pytest.skip(missing)
    home = Path(tempfile.mkdtemp(prefix="postgres-test-"))

    def start(**settings):
        return service.start(home, **settings)

    start.home = home
    start.stop = lambda: service.stop(home, mode="immediate")
    yield start
    service.stop(home, mode="immediate")
    shutil.rmtree(home)


# --- one subtask at a time ----------------------------------------------------------------------


def sink_of(dsn, **settings):
    return SinkOperator(PostgresSink(dsn, "numbers", **settings), arrow_format(NUMBERS))


def opened(dsn, **settings):
    return OperatorHarness(sink_of(dsn), name="Numbers", **settings)


def give(harness, *numbers):
    harness.process([(n, n * n) for n in numbers], type_info=NUMBERS)


def test_without_a_lease_nothing_is_committed_or_rolled_back(database):
    with opened(database) as harness:
        give(harness, 1)
        snapshot = harness.snapshot()
        give(harness, 2)
        harness.snapshot()
        before = prepared(database)
        harness.has_lease = False
        for act in (
            harness.complete_checkpoint,
            lambda: opened(database, restore_from=[snapshot], has_lease=False),
            lambda: opened(database, has_lease=False),
        ):
            with pytest.raises(LeaseEnded):
                act()
        assert len(before) == 2
        assert prepared(database) == before


def test_rows_appear_when_their_checkpoint_is_complete(database):
    with opened(database) as harness:
        give(harness, 1, 2)
        harness.flush()
        assert rows(database) == [] and prepared(database) == []
        harness.snapshot()
        give(harness, 3)
        assert rows(database) == []
        harness.complete_checkpoint()
        assert rows(database) == [1, 2]
        harness.snapshot()
        harness.complete_checkpoint()
        assert rows(database) == [1, 2, 3]
    assert prepared(database) == []


def test_an_aborted_checkpoint_is_committed_with_the_next(database):
    with opened(database) as harness:
        give(harness, 1)
        harness.snapshot()
        harness.abort_checkpoint()
        give(harness, 2)
        harness.snapshot()
        assert rows(database) == [] and len(prepared(database)) == 2
        harness.complete_checkpoint()
        assert rows(database) == [1, 2]


def test_a_checkpoint_without_rows_prepares_nothing(database):
    with opened(database) as harness:
        harness.snapshot()
        assert prepared(database) == []
        harness.complete_checkpoint()


def test_the_name_of_a_transaction_tells_job_operator_and_subtask(database):
    with opened(database, parallelism=4, subtask=3) as harness:
        give(harness, 1)
        harness.snapshot()
        (name,) = prepared(database)
        assert name.startswith("tidegate:harness:Numbers:3:")
        harness.complete_checkpoint()


def test_names_are_short_enough_and_stay_apart():
    one, other = (TransactionNames("0" * 32, f"{'ö: ' * 200}{end}") for end in "ab")
    assert one.prefix != other.prefix
    assert len(one.transaction(12345, "0123abcd-1000000").encode()) < 200
    assert len(one.writing_session(12345).encode()) < 64
    assert one.subtask_of(one.transaction(7, "x-1")) == 7
    assert one.subtask_of_session(other.writing_session(7)) is None
    assert one.subtask_of_session(one.writing_session(7)) == 7


def test_a_commit_may_be_repeated(database):
    with opened(database) as harness:
        give(harness, 1, 2)
        snapshot = harness.snapshot()
        harness.complete_checkpoint()
        for _ in range(2):
            with harness.restore(snapshot) as again:
                assert rows(database) == [1, 2]
            assert again.context.attempt == 2


def test_a_lost_transaction_is_reported_and_not_mistaken_for_committed(database):
    with opened(database) as harness:
        give(harness, 1)
        snapshot = harness.snapshot()
        (name,) = prepared(database)
        with connect(database) as other:
            other.execute(f"ROLLBACK PREPARED '{name}'")
        with pytest.raises(TransactionLost, match="it was rolled back") as caught:
            harness.restore(snapshot)
        assert name in str(caught.value)


PROCESS = """
import os, pickle, signal, sys
from tests.services.test_postgres_sink import give, opened

dsn, file, prepares = sys.argv[1], sys.argv[2], sys.argv[3] == "prepared"
harness = opened(dsn)
give(harness, 1, 2, 3)
harness.flush()
if prepares:
    with open(file, "wb") as stored:
        pickle.dump(harness.snapshot(), stored)
    give(harness, 4)
    harness.flush()
os.kill(os.getpid(), signal.SIGKILL)
"""


def killed_process(dsn, file, phase):
    root = Path(__file__).parents[2]
    process = subprocess.run(
        [sys.executable, "-c", PROCESS, dsn, str(file), phase],
        cwd=root,
        env={**os.environ, "PYTHONPATH": str(root)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.returncode == -signal.SIGKILL, process.stderr


def test_what_a_killed_process_prepared_is_committed_by_another(database, tmp_path):
    killed_process(database, tmp_path / "snapshot", "prepared")
    assert rows(database) == [] and len(prepared(database)) == 1
    snapshot = pickle.loads((tmp_path / "snapshot").read_bytes())
    with opened(database, restore_from=[snapshot], attempt=2) as harness:
        assert rows(database) == [1, 2, 3]
        give(harness, 4)
        harness.snapshot()
        harness.complete_checkpoint()
    assert rows(database) == [1, 2, 3, 4]


def test_what_a_killed_process_had_not_prepared_never_appears(database, tmp_path):
    killed_process(database, tmp_path / "snapshot", "open")
    with opened(database, attempt=2) as harness:
        give(harness, 7)
        harness.snapshot()
        harness.complete_checkpoint()
    assert rows(database) == [7]


def test_what_no_checkpoint_holds_is_rolled_back(database):
    with opened(database) as harness:
        give(harness, 1)
        kept = harness.snapshot()
        give(harness, 2)
        harness.snapshot()
        assert len(prepared(database)) == 2
    with harness.restore(kept):
        assert rows(database) == [1]
        assert prepared(database) == []


def test_only_the_sinks_own_leftovers_are_rolled_back(database):
    names = [
        "tidegate:another:Numbers:0:00000000-1",
        "tidegate:harness:Numbers 2:0:00000000-1",
        "somebody else's",
    ]
    with connect(database) as other:
        for name in names:
            other.execute("BEGIN")
            other.execute("INSERT INTO numbers VALUES (0)")
            other.execute(psycopg.sql.SQL("PREPARE TRANSACTION {}").format(name))
    with opened(database):
        assert prepared(database) == sorted(names)
    with connect(database) as other:
        for name in names:
            other.execute(psycopg.sql.SQL("ROLLBACK PREPARED {}").format(name))


def subtasks(dsn, count, *snapshots):
    return [
        opened(dsn, parallelism=count, subtask=i, max_parallelism=128, restore_from=snapshots)
        for i in range(count)
    ]


@pytest.mark.parametrize(("before", "after"), [(3, 1), (1, 3), (3, 2)])
def test_a_rescaled_sink_commits_each_transaction_and_rolls_back_the_others(
    database, before, after
):
    old = subtasks(database, before)
    for number, harness in enumerate(old):
        give(harness, number)
    snapshots = [harness.snapshot() for harness in old]
    for number, harness in enumerate(old):
        give(harness, 100 + number)
        harness.snapshot()
        harness.close()
    assert len(prepared(database)) == 2 * before
    new = subtasks(database, after, *snapshots)
    assert rows(database) == list(range(before))
    assert prepared(database) == []
    for harness in new:
        harness.close()


def test_the_session_of_a_lost_attempt_is_ended(database):
    lost = opened(database)
    give(lost, 1)
    lost.flush()
    with opened(database, attempt=2) as harness:
        give(harness, 2)
        harness.snapshot()
        with pytest.raises(DatabaseFailed, match="terminating connection"):
            lost.snapshot()
        harness.complete_checkpoint()
    assert rows(database) == [2] and prepared(database) == []
    lost.close()


def test_a_writer_that_failed_takes_part_in_no_checkpoint_any_more(database):
    with opened(database) as harness:
        give(harness, 1)
        harness.flush()
        with connect(database) as other:
            other.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE application_name LIKE 'tidegate/%' AND datname = current_database()"
            )
        for use in (harness.snapshot, harness.flush, harness.snapshot):
            with pytest.raises(DatabaseFailed, match="preparing a transaction"):
                use()
        harness.complete_checkpoint()
    assert rows(database) == []


def test_a_row_that_waits_for_a_prepared_transaction_is_not_waited_for_forever(database):
    with connect(database) as other:
        other.execute("CREATE UNIQUE INDEX ON numbers (n)")
    operator = sink_of(database, lock_timeout="50 ms")
    with OperatorHarness(operator, name="Numbers") as harness:
        give(harness, 1)
        harness.snapshot()
        give(harness, 1)
        with pytest.raises(DatabaseFailed, match="need the sink that upserts"):
            harness.flush()
        harness.complete_checkpoint()
    assert rows(database) == [1]


# --- whole jobs ---------------------------------------------------------------------------------


def environment(parallelism, **settings):
    env = mini_environment({"tidegate.step.max-records": 5, **settings}, parallelism=parallelism)
    env.set_restart_strategy(RestartStrategies.fixed_delay_restart(2 * FAILURES + 2, 1))
    return env


def squares(stream):
    return stream.map(lambda n: (n, n * n), NUMBERS)


@pytest.mark.parametrize("parallelism", [1, 2])
def test_every_row_is_there_once_after_failures(database, parallelism):
    env = environment(parallelism)
    env.enable_checkpointing("10 ms")
    numbers = env.from_sequence(1, LAST).map(FailsBehindCheckpoints()).rebalance()
    squares(numbers).sink_to(PostgresSink(database, "numbers"))
    env.execute()
    assert rows(database) == EXPECTED
    assert prepared(database) == []


def test_two_sinks_of_one_job_into_one_table_spare_each_others_transactions(database):
    env = environment(2)
    env.enable_checkpointing("10 ms")
    numbers = env.from_sequence(1, LAST).map(FailsBehindCheckpoints()).rebalance()
    for is_odd in (0, 1):
        part = numbers.filter(lambda n, is_odd=is_odd: n % 2 == is_odd)
        squares(part).sink_to(PostgresSink(database, "numbers"))
    env.execute()
    assert rows(database) == EXPECTED


def test_a_job_without_checkpoints_commits_at_its_end(database):
    env = environment(2)
    squares(env.from_sequence(1, LAST)).sink_to(PostgresSink(database, "numbers"))
    env.execute()
    assert rows(database) == EXPECTED


class Slowly(MapFunction):
    """Lets a record pass at a time, as long as the test wants it to."""

    gate = threading.Event()
    seen = 0

    def map(self, value):
        type(self).seen += 1
        self.gate.wait(0.005)
        return value


@pytest.fixture
def slowly():
    Slowly.gate.clear()
    Slowly.seen = 0
    yield Slowly
    Slowly.gate.set()


def test_a_server_that_crashes_mid_run_costs_nothing(own_server, slowly):
    dsn = with_table(own_server())
    env = environment(2)
    env.set_restart_strategy(RestartStrategies.fixed_delay_restart(10_000, 20))
    env.enable_checkpointing("10 ms")
    squares(env.from_sequence(1, LAST).map(slowly())).sink_to(PostgresSink(dsn, "numbers"))
    job = env.execute_async()
    for _ in range(2):
        wait_until(lambda: len(rows(dsn)) > 20)
        own_server.stop()
        before = slowly.seen
        assert own_server() == dsn
        wait_until(lambda before=before: slowly.seen > before + 20)
    slowly.gate.set()
    job.get_job_execution_result().result()
    assert rows(dsn) == EXPECTED
    assert prepared(dsn) == []


def test_a_server_that_crashes_between_the_phases_keeps_what_was_prepared(own_server):
    dsn = with_table(own_server())
    with opened(dsn) as harness:
        for number in (1, 2):
            give(harness, number)
            harness.snapshot()
            if number == 1:
                harness.complete_checkpoint()  # so that a connection for commits is there
        own_server.stop()
        own_server()
        harness.complete_checkpoint()
        assert rows(dsn) == [1, 2]


def test_a_commit_that_fails_is_made_up_for_by_the_next_attempt(own_server):
    dsn = with_table(own_server())
    with opened(dsn) as harness:
        give(harness, 1)
        snapshot = harness.snapshot()
        own_server.stop()
        with pytest.raises(DatabaseFailed, match="failed while connecting"):
            harness.complete_checkpoint()
        with pytest.raises(DatabaseFailed):
            harness.restore(snapshot)
        own_server()
        with harness.restore(snapshot):
            assert rows(dsn) == [1]


def test_a_server_that_is_down_at_the_start_ends_the_job(own_server):
    dsn = with_table(own_server())
    own_server.stop()
    env = environment(1)
    env.set_restart_strategy(RestartStrategies.fixed_delay_restart(10_000, 20))
    env.enable_checkpointing("10 ms")
    squares(env.from_sequence(1, LAST)).sink_to(PostgresSink(dsn, "numbers"))
    with pytest.raises(DatabaseFailed):
        env.execute()


def test_a_server_that_is_not_there_is_named_without_the_password():
    (port,) = free_ports(1)
    env = environment(1)
    env.set_restart_strategy(RestartStrategies.no_restart())
    sink = PostgresSink(f"postgresql://me:secret@127.0.0.1:{port}/shop", "numbers")
    squares(env.from_sequence(1, 3)).sink_to(sink)
    with pytest.raises(DatabaseFailed, match=f"127.0.0.1:{port}/shop failed") as caught:
        env.execute()
    assert "refused" in str(caught.value)
    assert "secret" not in str(caught.value) + repr(sink)


@pytest.mark.parametrize("allowed", [0, 1])
def test_a_server_with_too_few_prepared_transactions_ends_the_job_with_advice(own_server, allowed):
    dsn = with_table(own_server(max_prepared_transactions=allowed))
    env = environment(2)
    env.enable_checkpointing("10 ms")
    squares(env.from_sequence(1, LAST)).sink_to(PostgresSink(dsn, "numbers"))
    advice = f"max_prepared_transactions = {allowed}: .* set it to at least 4 in postgresql.conf"
    with pytest.raises(UnsuitableServer, match=advice):
        env.execute()
    assert rows(dsn) == []


def test_a_server_whose_prepared_transactions_are_used_up_is_tried_again(own_server):
    dsn = with_table(own_server(max_prepared_transactions=1))
    with opened(dsn) as harness:
        give(harness, 1)
        harness.snapshot()
        give(harness, 2)
        with pytest.raises(DatabaseFailed, match="Increase max_prepared_transactions"):
            harness.snapshot()
