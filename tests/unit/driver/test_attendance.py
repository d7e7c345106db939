"""Sinks that have something to do in the driver, where the real engine runs."""

import pytest

from tests.programs import PATIENCE, apply, graph_of, mapped, read, settings_of, wait_until
from tests.taps import Tap
from tidegate.connectors.driver_side import CollectSink, DriverSide
from tidegate.core.errors import ConfigError, UserFunctionError
from tidegate.operators.endpoints.operators import SinkOperator
from tidegate.testing.mini_cluster import run

QUIET = {"tidegate.console.live-line": "off"}


class Attended(CollectSink, DriverSide):
    """Keeps in the driver what is delivered."""

    def __init__(self, problem=None):
        super().__init__("attended")
        self.collector = "attended"
        self.heard = []
        self.problem = problem

    def before_start(self):
        self.heard.append("start")
        if self.problem is not None:
            raise self.problem

    def delivered(self, record):
        self.heard.append(record)

    def ended(self):
        self.heard.append("end")


def into(sink, upstream):
    return apply(SinkOperator(sink), upstream, name="attended", uid="attended", is_sink=True)


def start(sink, source, parallelism=1, **settings):
    def plan(parallelism):
        return graph_of(
            into(sink, mapped(abs, read(source, uid="source"))), parallelism=parallelism
        )

    return run(plan(parallelism), settings_of({**QUIET, **settings}), plan)


def test_the_result_is_there_when_a_sink_has_heard_everything():
    sink = Attended()
    start(sink, range(5)).result(PATIENCE)
    assert sink.heard == ["start", 0, 1, 2, 3, 4, "end"]


def test_a_sink_hears_of_the_end_of_a_job_that_fails():
    sink = Attended()
    with pytest.raises(UserFunctionError):
        start(sink, [1, "no number"]).result(PATIENCE)
    assert sink.heard == ["start", 1, "end"]


def test_callbacks_for_the_end_run_after_the_sinks():
    sink, seen = Attended(), []
    job = start(sink, range(3))
    job.when_ended(lambda: seen.append(list(sink.heard)))
    job.result(PATIENCE)
    wait_until(lambda: seen)
    assert seen[0][-1] == "end"


def test_a_job_that_is_rescaled_is_attended_as_one():
    sink, tap = Attended(), Tap(range(20))
    job = start(sink, tap, 2, **{"execution.checkpointing.storage": "jobmanager"})
    tap.let_pass(10)
    job.rescale(1).result(PATIENCE)
    tap.let(20)
    job.result(PATIENCE)
    assert (sink.heard[0], sink.heard[-1]) == ("start", "end")
    assert sorted(sink.heard[1:-1]) == list(range(20))


def test_what_a_sink_raises_before_the_start_ends_the_job():
    sink = Attended(ConfigError("table", "numbers", "give one that exists"))
    with pytest.raises(ConfigError, match="give one that exists"):
        start(sink, range(3))
    assert sink.heard == ["start"]
