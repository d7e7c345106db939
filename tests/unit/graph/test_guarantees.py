from dataclasses import replace
from datetime import timedelta

import pytest

from tidegate.connectors.collection import CollectionSource
from tidegate.connectors.driver_side import PrintSink
from tidegate.connectors.files.encodings import CsvEncoding
from tidegate.connectors.files.sink import FileSink
from tidegate.connectors.guarantee import DeliveryGuarantee, Replay
from tidegate.core.checkpoint_settings import CheckpointSettings
from tidegate.core.modes import CheckpointingMode
from tidegate.graph.guarantees import end_to_end
from tidegate.graph.logical import Transformation, Upstream
from tidegate.graph.translate import GraphSettings, translate
from tidegate.operators.endpoints.operators import SinkOperator
from tidegate.operators.stateless import MapOperator

EXACTLY_ONCE = CheckpointSettings(interval=timedelta(seconds=1), directory="/checkpoints")
AT_LEAST_ONCE = replace(EXACTLY_ONCE, mode=CheckpointingMode.AT_LEAST_ONCE)


class OnceOnly(CollectionSource):
    def replay(self):
        return Replay(False, "does not send a line twice")


def transactional():
    return FileSink("/tmp/results", CsvEncoding())


def guarantees(*branches, checkpointing=EXACTLY_ONCE):
    """Of one job: every branch is some sources and the sink they end in."""
    sinks = []
    for number, (sources, sink) in enumerate(branches):
        starts = [
            Transformation(name=f"in-{number}-{i}", source=source)
            for i, source in enumerate(sources)
        ]
        inputs = tuple(Upstream(start) for start in starts)
        united = Transformation(name="map", operator=MapOperator(str), inputs=inputs)
        sinks.append(
            Transformation(
                name=f"out-{number}",
                operator=SinkOperator(sink),
                inputs=(Upstream(united),),
                is_sink=True,
            )
        )
    graph = translate(sinks, GraphSettings(job_name="job", parallelism=2))
    return [(g.sink, g.guarantee) for g in end_to_end(graph, checkpointing)], [
        str(g) for g in end_to_end(graph, checkpointing)
    ]


def levels(*branches, **more):
    return [level for _, level in guarantees(*branches, **more)[0]]


@pytest.mark.parametrize(
    ("source", "checkpointing", "sink", "expected"),
    [
        (CollectionSource, EXACTLY_ONCE, transactional, DeliveryGuarantee.EXACTLY_ONCE),
        (CollectionSource, AT_LEAST_ONCE, transactional, DeliveryGuarantee.AT_LEAST_ONCE),
        (CollectionSource, EXACTLY_ONCE, PrintSink, DeliveryGuarantee.AT_LEAST_ONCE),
        (CollectionSource, CheckpointSettings(), transactional, DeliveryGuarantee.NONE),
        (OnceOnly, EXACTLY_ONCE, transactional, DeliveryGuarantee.NONE),
    ],
)
def test_the_weakest_part_decides(source, checkpointing, sink, expected):
    assert levels(([source([1])], sink()), checkpointing=checkpointing) == [expected]


def test_every_sink_is_judged_by_its_own_sources():
    replayable = ([CollectionSource([1])], transactional())
    lossy = ([CollectionSource([1]), OnceOnly([1])], transactional())
    found, lines = guarantees(replayable, lossy)
    assert found == [
        ("out-0", DeliveryGuarantee.EXACTLY_ONCE),
        ("out-1", DeliveryGuarantee.NONE),
    ]
    assert lines[1] == "Sink 'out-1': no guarantee: source 'in-1-1' does not send a line twice"


def test_the_strongest_is_explained_by_all_of_its_parts():
    _, lines = guarantees(([CollectionSource([1])], transactional()))
    assert lines == [
        (
            "Sink 'out-0': exactly once, end to end: source 'in-0-0' replays from its positions; "
            "barriers align; the sink commits with the checkpoint"
        )
    ]


def test_checkpoints_in_memory_end_with_the_driver():
    in_memory = replace(EXACTLY_ONCE, directory=None)
    _, lines = guarantees(([CollectionSource([1])], transactional()), checkpointing=in_memory)
    assert "barriers align, with checkpoints in the memory of the driver" in lines[0]
