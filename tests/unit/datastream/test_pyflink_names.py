"""Names of PyFlink: where they are, and what those say that only wrap Java."""

import json
import runpy
from pathlib import Path

import pytest

from tidegate.common import Types
from tidegate.common.java_only import java_only
from tidegate.core.errors import GraphError
from tidegate.datastream import (
    BroadcastProcessFunction,
    CheckpointConfig,
    KeyedProcessFunction,
    MapFunction,
    TimeCharacteristic,
)
from tidegate.datastream.connectors.elasticsearch import Elasticsearch7SinkBuilder
from tidegate.datastream.state import MapStateDescriptor
from tidegate.testing.environments import mini_environment

ROOT = Path(__file__).parents[3]
SCRIPT = runpy.run_path(str(ROOT / "scripts" / "pyflink_names.py"))
NAMES = json.loads((ROOT / "scripts" / "pyflink_names.json").read_text())


def test_the_page_tells_what_is_there():
    written = (ROOT / "docs" / "pyflink-names.md").read_text()
    assert SCRIPT["page"]() == written, "run python scripts/pyflink_names.py"


def test_every_name_can_be_imported_from_where_pyflink_has_it():
    missing = [
        f"{module}.{name}"
        for module, names in NAMES.items()
        for name in names
        if SCRIPT["state_of"](module, name, NAMES)[0] == "no"
    ]
    assert missing == []


def test_a_name_that_wraps_java_says_so_however_it_is_used():
    sentence = "in PyFlink it wraps Java code. Write your own Sink"
    with pytest.raises(GraphError, match=f"^Elasticsearch7SinkBuilder is not .*{sentence}"):
        Elasticsearch7SinkBuilder()
    name = java_only("Something", "Do it by hand.")
    with pytest.raises(GraphError, match=r"^Something\.builder is not available: .* by hand\.$"):
        name.builder()
    with pytest.raises(GraphError, match=r"^a subclass of Something is not available"):
        type("Mine", (name,), {})


def test_names_of_older_versions_are_there():
    env = mini_environment()
    for time, interval in (
        (TimeCharacteristic.ProcessingTime, 0),
        (TimeCharacteristic.EventTime, 200),
    ):
        env.set_stream_time_characteristic(time)
        assert env.get_stream_time_characteristic() is time
        assert env.get_config().get_auto_watermark_interval() == interval
    cleanup = CheckpointConfig.ExternalizedCheckpointCleanup.RETAIN_ON_CANCELLATION
    env.get_checkpoint_config().enable_externalized_checkpoints(cleanup)


def test_functions_are_generic_as_in_pyflink():
    class Mine(KeyedProcessFunction[str, int, int]):
        def process_element(self, value, ctx):
            yield value

    assert isinstance(Mine(), KeyedProcessFunction)
    assert BroadcastProcessFunction[int, int, int] is BroadcastProcessFunction
    assert MapFunction[int, int] is MapFunction


def test_broadcast_has_pyflinks_parameter():
    numbers = mini_environment().from_collection([1])
    rules = MapStateDescriptor("rules", Types.STRING(), Types.STRING())
    stream = numbers.broadcast(broadcast_state_descriptor=rules)
    assert stream.broadcast_state_descriptors == (rules,)
