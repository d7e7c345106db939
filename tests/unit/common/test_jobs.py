import threading
from concurrent.futures import Future

import pytest

from tidegate.common import (
    ByteArraySchema,
    CompletableFuture,
    JobClient,
    JobID,
    JobStatus,
    RestartStrategies,
    SimpleStringSchema,
    WatermarkStrategy,
)
from tidegate.core.errors import ConfigError, JobCanceled
from tidegate.core.modes import RestartStrategyType
from tidegate.protocol import job_status as runtime_status


class ScriptedJob:
    """A job that runs until it is told how to end."""

    job_id = "ab" * 16

    def __init__(self):
        self.ended = Future()

    def accumulators(self):
        return {}

    def status(self):
        if not self.ended.done():
            return runtime_status.JobStatus.RUNNING
        failed = self.ended.exception() is not None
        return runtime_status.JobStatus.CANCELED if failed else runtime_status.JobStatus.FINISHED

    def result(self, timeout=None):
        return self.ended.result(timeout)

    def cancel(self):
        self.ended.set_exception(JobCanceled("scripted"))

    def collected(self, name, format):
        return iter(())


def test_a_client_tells_the_status_of_its_job_and_waits_for_its_result():
    job = ScriptedJob()
    client = JobClient(job)
    assert client.get_job_id() == JobID("ab" * 16)
    assert client.get_job_status().result() is JobStatus.RUNNING
    result = client.get_job_execution_result()
    assert not result.done()
    job.ended.set_result(None)
    assert result.result(120).get_job_id() == client.get_job_id()
    assert result.result().get_net_runtime() >= 0
    assert "has finished" in str(result.result())
    assert client.get_job_status().result() is JobStatus.FINISHED


def test_cancelling_is_done_when_the_job_has_ended_and_its_result_is_an_error():
    client = JobClient(ScriptedJob())
    result = client.get_job_execution_result()
    client.cancel().result(120)
    assert client.get_job_status().result() is JobStatus.CANCELED
    with pytest.raises(JobCanceled):
        result.result(120)


def test_a_future_runs_its_call_on_another_thread_and_keeps_its_error():
    def fail():
        raise ValueError("broken")

    assert CompletableFuture.of_call(threading.get_ident, "t").result(120) != threading.get_ident()
    assert isinstance(CompletableFuture.of_call(fail, "t").exception(10), ValueError)


@pytest.mark.parametrize("status", runtime_status.JobStatus)
def test_every_status_of_the_runtime_has_its_name_in_the_api(status):
    assert JobStatus[status.name].is_globally_terminal_state() == status.is_terminal


def test_a_suspended_job_is_terminal_here_but_not_everywhere():
    assert JobStatus.SUSPENDED.is_terminal_state()
    assert not JobStatus.SUSPENDED.is_globally_terminal_state()


def test_restart_strategies_describe_themselves_as_in_flink():
    fixed = RestartStrategies.fixed_delay_restart(3, 10_000)
    assert fixed.strategy is RestartStrategyType.FIXED_DELAY
    assert fixed.get_description() == ("Restart with fixed delay (10000 ms). #3 restart attempts.")
    assert fixed == RestartStrategies.fixed_delay_restart(3, "10 s")
    assert RestartStrategies.failure_rate_restart(3, 300_000, 5_000).get_description() == (
        "Failure rate restart with maximum of 3 failures within interval 300000 ms "
        "and fixed delay 5000 ms."
    )
    assert RestartStrategies.no_restart().get_description() == "Restart deactivated."


def test_watermark_strategies_describe_themselves():
    assert repr(WatermarkStrategy.no_watermarks()) == "WatermarkStrategy.no_watermarks()"
    assert repr(WatermarkStrategy.for_bounded_out_of_orderness("1 s")) == (
        "WatermarkStrategy.for_bounded_out_of_orderness(1000)"
    )


def test_watermark_strategies_refuse_nonsense():
    monotonous = WatermarkStrategy.for_monotonous_timestamps()
    for error, refused in (
        (ConfigError, lambda: WatermarkStrategy.for_bounded_out_of_orderness(-1)),
        (ConfigError, lambda: monotonous.with_idleness(0)),
        (ConfigError, lambda: monotonous.with_watermark_alignment("group", -1)),
        (TypeError, lambda: monotonous.with_timestamp_assigner(None)),
        (TypeError, lambda: WatermarkStrategy.for_generator(7)),
    ):
        with pytest.raises(error):
            refused()


def test_schemas_turn_records_into_bytes_and_back():
    text, raw = SimpleStringSchema("latin-1"), ByteArraySchema()
    assert text.serialize("é") == b"\xe9"
    assert text.deserialize(b"\xe9") == "é"
    assert raw.deserialize(raw.serialize(bytearray(b"ab"))) == b"ab"
    with pytest.raises(LookupError, match="unknown encoding"):
        SimpleStringSchema("martian")
