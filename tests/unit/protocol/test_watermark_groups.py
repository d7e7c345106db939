import pytest

from tidegate.connectors.source import InputStatus
from tidegate.protocol.messages import SlotReport, SourceReport
from tidegate.protocol.watermark_groups import WatermarkGroups


def report(*aligned):
    """The report of a slot with these sources: their group and watermark, or None."""
    found = [SourceReport(0, InputStatus.MORE_AVAILABLE, None, each) for each in aligned]
    return SlotReport(slot=0, sources=dict(enumerate(found)))


@pytest.fixture
def groups():
    return WatermarkGroups()


def test_the_slowest_source_of_a_group_counts_in_all_slots_and_pipelines(groups):
    groups.reported(0, [report(("orders", 30), ("clicks", 5)), report(("orders", 20))])
    groups.reported(1, [report(("orders", 25), ("clicks", 1))])
    assert groups.lowest() == {"orders": 20, "clicks": 1}


def test_a_source_that_is_idle_or_has_ended_holds_nobody_back(groups):
    groups.reported(0, [report(("orders", 10))])
    groups.reported(1, [report(("orders", 20))])
    groups.reported(0, [report(None)])
    assert groups.lowest() == {"orders": 20}


def test_without_sources_in_a_group_there_is_none(groups):
    groups.reported(0, [report(None)])
    assert groups.lowest() == {}
