"""Starting, watching, collecting and cancelling jobs."""

import threading

import pytest

from tests.api.results import collect
from tidegate.common import JobStatus, RestartStrategies, Types
from tidegate.core.errors import GraphError, JobCanceled, NotSerializable, UserFunctionError
from tidegate.datastream import JobManagerCheckpointStorage, MapFunction
from tidegate.datastream.connectors import DataGeneratorSource
from tidegate.testing import environments
from tidegate.testing.environments import mini_environment


def endless(env):
    return env.from_source(DataGeneratorSource(lambda i: i, rate=5_000), source_name="numbers")


def test_execute_returns_when_the_job_has_finished(env, capsys):
    env.from_collection(["done"]).print().set_parallelism(1)
    result = env.execute("the job")
    assert len(str(result.get_job_id())) == 32
    assert result.get_net_runtime() >= 0
    assert result.get_all_accumulator_results() == {}
    assert capsys.readouterr().out == "done\n"


def test_streams_can_be_used_again_in_the_next_program(env):
    numbers = env.from_collection([1, 2, 3], Types.LONG())
    assert sorted(collect(numbers.map(lambda n: n + 1))) == [2, 3, 4]
    assert sorted(collect(numbers.filter(lambda n: n > 1))) == [2, 3]


def test_operators_without_a_sink_run_too(env, tmp_path):
    env.from_collection(["x"]).map(lambda name: (tmp_path / name).touch())
    env.execute()
    assert [file.name for file in tmp_path.iterdir()] == ["x"]


def test_a_job_client_watches_and_cancels_a_job(env):
    endless(env).add_sink(lambda n: None)
    client = env.execute_async("endless")
    assert not client.get_job_execution_result().done()
    assert not client.get_job_status().result().is_terminal_state()
    client.cancel().result(120)
    assert client.get_job_status().result() is JobStatus.CANCELED
    with pytest.raises(JobCanceled, match="'endless' was cancelled"):
        client.get_job_execution_result().result(120)


def test_the_name_of_a_job_is_its_own(env):
    env.configure({"pipeline.name": "configured"})
    for name, expected in (("given", "given"), (None, "configured")):
        endless(env).add_sink(lambda n: None)
        client = env.execute_async(name)
        client.cancel().result(120)
        with pytest.raises(JobCanceled, match=f"'{expected}' was cancelled"):
            client.wait(120)


def test_a_limit_ends_the_collection_and_the_job(env):
    assert len(endless(env).execute_and_collect("some", limit=5)) == 5


def test_leaving_the_block_cancels_the_job(env):
    with endless(env).execute_and_collect() as numbers:
        assert isinstance(next(numbers), int)
        assert isinstance(numbers.next(), int)
    with pytest.raises(JobCanceled):
        list(numbers)


def test_a_failed_job_fails_again_when_it_is_asked_again(env):
    env.from_collection([0]).map(lambda n: 1 // n)
    client = env.execute_async()
    with pytest.raises(UserFunctionError, match="ZeroDivisionError"):
        client.wait(120)
    assert client.get_job_status().result() is JobStatus.FAILED


def test_a_failed_job_is_run_again_as_often_as_its_strategy_says(env, tmp_path):
    class FailTwice(MapFunction):
        def open(self, runtime_context):
            self.attempt = runtime_context.get_attempt_number()

        def map(self, value):
            (tmp_path / str(self.attempt)).touch()
            if self.attempt < 2:
                raise ValueError("not yet")
            return value

    env.set_restart_strategy(RestartStrategies.fixed_delay_restart(2, 1))
    assert collect(env.from_collection(["ok"]).map(FailTwice()).set_parallelism(1)) == ["ok"]
    assert sorted(file.name for file in tmp_path.iterdir()) == ["0", "1", "2"]


def test_a_function_that_cannot_travel_is_refused_before_the_job_starts(env):
    lock = threading.Lock()
    env.from_collection([1]).map(lambda n: (lock, n)).name("Locked")
    with pytest.raises(NotSerializable, match=r"operator 'Locked' cannot be sent .* open\(\)"):
        env.execute()


def test_a_uid_belongs_to_one_operator(env):
    env.from_collection([1]).map(str).uid("same").map(str).uid("same")
    with pytest.raises(GraphError, match="uid 'same' is used by both"):
        env.execute()


def test_checkpoints_that_end_with_the_driver_are_warned_of_unless_they_are_meant(env, caplog):
    assert collect(env.from_collection([1])) == [1]
    assert caplog.text == ""
    env.enable_checkpointing(1000)
    assert collect(env.from_collection([1])) == [1]
    assert "kept in the memory of the driver" in caplog.text
    caplog.clear()
    env.get_checkpoint_config().set_checkpoint_storage(JobManagerCheckpointStorage())
    assert collect(env.from_collection([1])) == [1]
    assert "memory of the driver" not in caplog.text


def test_chaining_changes_nothing_but_the_number_of_vertices():
    for chained in (True, False):
        env = mini_environment({"pipeline.operator-chaining.enabled": chained}, parallelism=2)
        assert env.is_chaining_enabled() is chained
        stream = env.from_sequence(1, 5).map(lambda n: n * 2).filter(lambda n: n > 4)
        assert sorted(collect(stream.map(str))) == ["10", "6", "8"]


def test_a_session_of_spark_is_needed_for_dataframes_only(env, monkeypatch):
    monkeypatch.setattr(environments, "active_session", lambda: None)
    with pytest.raises(GraphError, match="DataFrames need Spark"):
        env.from_collection([1], Types.LONG()).to_dataframe()


def test_a_dataframe_needs_a_stream_that_ends_and_has_a_type(env):
    with pytest.raises(GraphError, match="the source 'numbers' never does"):
        endless(env).to_dataframe()
    with pytest.raises(GraphError, match="a DataFrame needs the type of the records"):
        env.from_collection([1]).to_dataframe()
