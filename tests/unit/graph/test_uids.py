"""Operators with state that have no uid."""

import pytest

from tests.programs import graph_of, mapped, read
from tests.taps import Tap
from tidegate.datastream.connectors.file_system import Encoder, FileSink
from tidegate.datastream.environment import uid_warning, without_uid
from tidegate.datastream.functions import (
    BroadcastProcessFunction,
    CheckpointedFunction,
    KeyedProcessFunction,
    MapFunction,
    SinkFunction,
)
from tidegate.datastream.state import MapStateDescriptor, ValueStateDescriptor
from tidegate.testing.environments import MiniExecutor, StreamExecutionEnvironment

RULES = MapStateDescriptor("rules")


class Planned(Exception):
    """Leaves the program where its job would start."""


class Planning(MiniExecutor):
    def submit(self, graph, settings, replan=None):
        raise Planned(graph)


class Plain(MapFunction):
    def map(self, value):
        return value


class Opened(Plain):
    def open(self, runtime_context):
        self.state = runtime_context.get_state(ValueStateDescriptor("seen"))


class Buffering(Plain, CheckpointedFunction):
    def initialize_state(self, context): ...

    def snapshot_state(self, context): ...


class Timed(KeyedProcessFunction):
    def process_element(self, value, ctx): ...


class Ruled(BroadcastProcessFunction):
    def process_element(self, value, ctx): ...

    def process_broadcast_element(self, value, ctx): ...


class Discarding(SinkFunction):
    def invoke(self, value, context): ...


@pytest.fixture
def env():
    return StreamExecutionEnvironment({"execution.checkpointing.interval": "1 s"}, Planning(1))


def graph(env):
    with pytest.raises(Planned) as planned:
        env.execute_async()
    return planned.value.args[0]


def source(env):
    return env.from_source(Tap([1])).uid("source")


WITH_STATE = {
    "map": lambda env: source(env).key_by(str).map(Opened()),
    "operator state": lambda env: source(env).map(Buffering()),
    "process": lambda env: source(env).key_by(str).process(Timed()),
    "reduce": lambda env: source(env).key_by(str).reduce(max),
    "sum": lambda env: source(env).key_by(str).sum(0),
    "count": lambda env: source(env).key_by(str).count(),
    "broadcast": lambda env: source(env).connect(source2(env).broadcast(RULES)).process(Ruled()),
}
WITHOUT = {
    "map": lambda env: source(env).map(Plain()),
    "lambda by key": lambda env: source(env).key_by(str).map(lambda number: number),
    "function by key that is not opened": lambda env: source(env).key_by(str).map(Plain()),
    "filter": lambda env: source(env).filter(bool),
}


def source2(env):
    return env.from_source(Tap([1])).uid("other source")


@pytest.mark.parametrize("build", WITH_STATE.values(), ids=WITH_STATE)
def test_an_operator_with_state_is_named(build, env):
    build(env).name("the one").add_sink(Discarding())
    assert without_uid(graph(env)) == ("the one",)


@pytest.mark.parametrize("build", WITHOUT.values(), ids=WITHOUT)
def test_an_operator_without_state_needs_no_uid(build, env):
    build(env).add_sink(Discarding())
    assert without_uid(graph(env)) == ()


def test_sources_with_positions_and_sinks_that_commit_are_named(env, tmp_path):
    records = env.from_source(Tap([1]), source_name="records")
    records.sink_to(FileSink(str(tmp_path), Encoder())).name("files")
    assert without_uid(graph(env)) == ("records", "files")


def test_the_warning_names_them_and_says_what_to_do():
    warning = uid_warning(graph_of(mapped(abs, read([1], name="numbers"))))
    assert warning.startswith("no uid is set for 'numbers': ")
    assert '.uid("orders")' in warning
    assert uid_warning(graph_of(mapped(abs, read([1], uid="numbers")))) is None


def warnings_of(env, caplog):
    graph(env)
    return [r for r in caplog.records if r.levelname == "WARNING" and "no uid" in r.getMessage()]


def test_a_job_with_checkpoints_warns_once_at_its_start(env, caplog):
    source(env).key_by(str).sum(0).name("sums").key_by(str).reduce(max).name("most").print()
    [warning] = warnings_of(env, caplog)
    assert "no uid is set for 'sums', 'most':" in warning.getMessage()


def test_a_job_whose_operators_have_uids_does_not_warn(env, caplog):
    source(env).key_by(str).sum(0).uid("sums").map(Plain()).print()
    assert warnings_of(env, caplog) == []


def test_a_job_without_checkpoints_does_not_warn(caplog):
    env = StreamExecutionEnvironment(None, Planning(1))
    source(env).key_by(str).sum(0).print()
    assert warnings_of(env, caplog) == []
