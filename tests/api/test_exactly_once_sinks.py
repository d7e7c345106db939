"""Results outside of the job: each of them once, whatever fails."""

from pathlib import Path

import pytest

from tests.failing import FAILURES, FailsBehindCheckpoints
from tidegate.common import RestartStrategies
from tidegate.core.errors import UserFunctionError
from tidegate.datastream.connectors.file_system import (
    BucketAssigner,
    Encoder,
    FileSink,
    RollingPolicy,
)
from tidegate.datastream.functions import TwoPhaseCommitSinkFunction
from tidegate.testing.environments import mini_environment

LAST = 600


def environment(parallelism, **settings):
    env = mini_environment({"tidegate.step.max-records": 5, **settings}, parallelism=parallelism)
    env.set_restart_strategy(RestartStrategies.fixed_delay_restart(2 * FAILURES + 2, 1))
    return env


def failing_numbers(env):
    return env.from_sequence(1, LAST).map(FailsBehindCheckpoints()).rebalance()


def numbers_in(directory):
    files = [path for path in Path(directory).rglob("*") if path.is_file()]
    assert not [path.name for path in files if path.name.startswith(".")]
    return sorted(int(line) for path in files for line in path.read_text().split())


@pytest.mark.parametrize("parallelism", [1, 2])
def test_every_record_is_in_one_file_once(tmp_path, parallelism):
    env = environment(parallelism)
    env.enable_checkpointing("10 ms")
    sink = (
        FileSink.for_row_format(str(tmp_path / "out"), Encoder.simple_string_encoder())
        .with_rolling_policy(RollingPolicy.default_rolling_policy(part_size=40))
        .with_bucket_assigner(BucketAssigner.by(lambda number: f"end-{number % 10}"))
        .build()
    )
    failing_numbers(env).sink_to(sink)
    env.execute()
    assert numbers_in(tmp_path / "out") == list(range(1, LAST + 1))
    assert len(list((tmp_path / "out").iterdir())) == 10


def test_a_job_without_checkpoints_shows_its_files_at_the_end(tmp_path):
    env = environment(2)
    env.from_sequence(1, LAST).sink_to(FileSink(str(tmp_path / "out"), Encoder()))
    env.execute()
    assert numbers_in(tmp_path / "out") == list(range(1, LAST + 1))


def test_a_job_that_ended_for_good_leaves_only_what_was_committed(tmp_path):
    env = environment(1)
    env.set_restart_strategy(RestartStrategies.no_restart())
    env.enable_checkpointing("10 ms")
    failing_numbers(env).sink_to(FileSink(str(tmp_path / "out"), Encoder()))
    with pytest.raises(UserFunctionError, match="behind a checkpoint"):
        env.execute()
    visible = [p for p in (tmp_path / "out").iterdir() if not p.name.startswith(".")]
    found = sorted(int(line) for path in visible for line in path.read_text().split())
    assert found == list(range(1, len(found) + 1))


class Ledger(TwoPhaseCommitSinkFunction):
    """Transactions as files: a directory for each phase."""

    def __init__(self, directory):
        self.directory = directory

    def open(self, runtime_context):
        self.subtask = runtime_context.get_index_of_this_subtask()
        self.attempt = runtime_context.get_attempt_number()
        self.count = 0

    def begin_transaction(self):
        self.count += 1
        return f"{self.subtask}-{self.attempt}-{self.count}"

    def invoke(self, transaction, value, context):
        with (self.directory / "open" / transaction).open("a") as file:
            file.write(f"{value}\n")

    def pre_commit(self, transaction):
        self._move(transaction, "open", "prepared")

    def commit(self, transaction):
        self._move(transaction, "prepared", "committed")

    def abort(self, transaction):
        (self.directory / "open" / transaction).unlink(missing_ok=True)

    def _move(self, transaction, before, after):
        file = self.directory / before / transaction
        if file.exists():
            file.rename(self.directory / after / transaction)


@pytest.fixture
def phases(tmp_path):
    for phase in ("open", "prepared", "committed"):
        (tmp_path / phase).mkdir()


@pytest.mark.parametrize("parallelism", [1, 2])
def test_transactions_of_the_users_own_hold_every_record_once(tmp_path, phases, parallelism):
    env = environment(parallelism)
    env.enable_checkpointing("10 ms")
    failing_numbers(env).add_sink(Ledger(tmp_path))
    env.execute()
    assert numbers_in(tmp_path / "committed") == list(range(1, LAST + 1))


class HalfPrepared(Ledger):
    """The first transaction that is prepared with records loses them in doing so."""

    def pre_commit(self, transaction):
        super().pre_commit(transaction)
        failed = self.directory / "failed"
        if not failed.exists() and (self.directory / "prepared" / transaction).exists():
            failed.touch()
            raise OSError("half of it is prepared")


def test_a_transaction_that_could_not_be_prepared_is_not_used_again(tmp_path, phases):
    env = environment(1)
    env.enable_checkpointing("10 ms")
    env.get_checkpoint_config().set_tolerable_checkpoint_failure_number(100)
    env.from_sequence(1, LAST).add_sink(HalfPrepared(tmp_path))
    env.execute()
    assert (tmp_path / "failed").exists()
    assert numbers_in(tmp_path / "committed") == list(range(1, LAST + 1))
