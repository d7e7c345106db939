"""The state of a join on columns as data: a row per record that may still be joined."""

import pytest

from tests.savepoints import GROUPS, stored
from tests.unit.operators.joins.test_interval_join import COLUMNS, ColumnHarness, at
from tidegate.core.modes import SavepointFormat
from tidegate.operators.joins.columnar.interval import ColumnarIntervalJoin
from tidegate.operators.joins.interval_join import IntervalSettings
from tidegate.savepoint import state_reader


@pytest.mark.parametrize("format", list(SavepointFormat))
def test_records_of_both_sides_are_read_with_their_times(tmp_path, format):
    join = ColumnarIntervalJoin(IntervalSettings(0, 9), COLUMNS, {})
    with ColumnHarness(join, max_parallelism=GROUPS) as harness:
        harness.add(*at(1, 2, key="a"), *at(3, key="b"))
        harness.add(*at(8, 20, key="b"), input_index=1)
        harness.watermark(11)
        frozen = harness.snapshot().keyed
        path = stored(tmp_path / "sp", {"op": lambda _: frozen}, format=format, parallelism=1)
    reader = state_reader(path)
    entries = {name: sorted(reader.entries("op", name)) for name in ("left-buffer", "right-buffer")}
    assert entries == {
        "left-buffer": [("a", {"timestamp": 2, "f1": 2}), ("b", {"timestamp": 3, "f1": 3})],
        "right-buffer": [("b", {"timestamp": 20, "f1": 20})],
    }
