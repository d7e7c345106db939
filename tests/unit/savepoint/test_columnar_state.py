"""Aggregates on columns in savepoints: keys of any form, columns of any name."""

from dataclasses import replace

import numpy as np
import pytest

from tests.savepoints import GROUPS, stored
from tidegate import state_reader
from tidegate.core.modes import SavepointFormat, StateBackendType
from tidegate.operators.aggregations.aggregates import plan_aggregates, sum_
from tidegate.operators.aggregations.named import RunningAggregates
from tidegate.operators.windows.assigners import EventTimeSessionWindows, TumblingEventTimeWindows
from tidegate.operators.windows.columnar.choice import columnar_agg
from tidegate.operators.windows.operator import WindowSettings
from tidegate.state.canonical.tables import entries_of
from tidegate.state.keys.key_groups import key_groups_of
from tidegate.state.keys.selection import select_key
from tidegate.state.snapshot.reader import StoredImage
from tidegate.stream.batch import Batch
from tidegate.testing.harness import OperatorHarness
from tidegate.types.arrow import arrow_format
from tidegate.types.row import Row
from tidegate.types.typeinfo import Types

BIDS = Types.ROW_NAMED(["item", "price"], [Types.STRING(), Types.LONG()])
FORMAT = arrow_format(BIDS)
ASSIGNERS = [None, TumblingEventTimeWindows.of(10), EventTimeSessionWindows.with_gap(5)]


def aggregating(assigner, key, names):
    """Running sums of each key, or those of windows, under these names."""
    aggregates = {name: sum_("price") for name in names}
    selection, has_windows = select_key(key, BIDS), assigner is not None
    plan = plan_aggregates(aggregates, selection, BIDS, None, has_windows=has_windows)
    if assigner is None:
        return RunningAggregates(plan)
    return columnar_agg(WindowSettings(assigner, assigner.get_default_trigger(None)), plan, {})


def bids(*prices):
    columns = FORMAT.encode([Row("a", price) for price in prices])
    return Batch(columns=columns, format=FORMAT, timestamps=np.zeros(len(prices), np.int64))


@pytest.mark.parametrize("assigner", ASSIGNERS)
@pytest.mark.parametrize("key", ["item", ("item",), ("item", "price")])
@pytest.mark.parametrize("backend", list(StateBackendType))
@pytest.mark.parametrize("format", list(SavepointFormat))
def test_aggregates_may_have_the_names_of_columns_of_savepoints(
    tmp_path, assigner, key, backend, format
):
    names = ["window_start", "window_end", "key", "key_", "key_group", "key0", "key1", "key2"]
    names += ["part0", "value", "pickled"]
    operator = aggregating(assigner, key, names)
    settings = {"state.backend.type": backend}
    with OperatorHarness(operator, max_parallelism=GROUPS, settings=settings) as harness:
        harness.process_batch(bids(3, 3))
        snapshot = harness.snapshot()
        path = stored(
            tmp_path / "savepoint", {"op": lambda _: snapshot.keyed}, parallelism=1, format=format
        )
        reader = state_reader(path)
        image = StoredImage(reader.operator("op").subtasks[0].keyed, reader.resolve)
        for again in StateBackendType:
            with OperatorHarness(
                operator,
                max_parallelism=GROUPS,
                settings={"state.backend.type": again},
                restore_from=[replace(snapshot, keyed=image)],
            ) as restored:
                restored.process_batch(bids(3))
                restored.watermark(100)
                (result,) = restored.output
                assert [result[name] for name in names] == [9] * len(names)


@pytest.mark.parametrize("assigner", ASSIGNERS)
@pytest.mark.parametrize("key", ["item", ("item",), ("item", "price")])
@pytest.mark.parametrize("backend", list(StateBackendType))
def test_entries_are_in_the_key_groups_of_their_keys(assigner, key, backend):
    """A tuple of one field has another hash than the field."""
    settings = {"state.backend.type": backend}
    operator = aggregating(assigner, key, ["total"])
    with OperatorHarness(operator, max_parallelism=GROUPS, settings=settings) as harness:
        harness.process_batch(bids(3))
        image = harness.snapshot().keyed
        (chunk,) = image.chunks()
        entries = entries_of(chunk, image.metadata[0].form)
        groups = key_groups_of(entries.keys.hashes(), GROUPS)
        assert [(group, 1) for group in groups.tolist()] == list(chunk.groups)
