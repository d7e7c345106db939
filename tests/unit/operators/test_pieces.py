"""Typed batches that are decoded piece by piece: nobody notices."""

import pytest

from tests.unit.operators.joins.test_interval_join import ColumnHarness, Pairs, at
from tidegate.core.errors import UserFunctionError
from tidegate.operators.joins.interval_join import IntervalJoinOperator, IntervalSettings
from tidegate.operators.keyed import KeyedMapOperator
from tidegate.state.keys.selection import select_key
from tidegate.stream import batch
from tidegate.stream.batch import Batch
from tidegate.testing.harness import OperatorHarness
from tidegate.types.arrow import arrow_format
from tidegate.types.typeinfo import Types

PAIRS = arrow_format(Types.TUPLE([Types.STRING(), Types.LONG()]))
RECORDS = [("a", number) for number in range(10)]


def fail_at_seven(record):
    if record[1] == 7:
        raise ValueError("seven")
    return record


def test_a_failure_in_a_later_piece_names_its_place_in_the_batch(monkeypatch):
    monkeypatch.setattr(batch, "_PIECE", 3)
    with OperatorHarness(KeyedMapOperator(fail_at_seven, (select_key(0),))) as harness:
        with pytest.raises(UserFunctionError) as raised:
            harness.process_batch(Batch(columns=PAIRS.encode(RECORDS), format=PAIRS))
        assert harness.output == RECORDS[:7]
    assert raised.value.suspects == range(7, 8)


def test_late_records_of_later_pieces_go_to_the_side_output(monkeypatch):
    monkeypatch.setattr(batch, "_PIECE", 3)
    settings, keys = IntervalSettings(0, 0, ("late", None)), (select_key(0, PAIRS.type_info),) * 2
    with ColumnHarness(IntervalJoinOperator(settings, Pairs(), keys)) as harness:
        harness.watermark(5)
        harness.add(*at(5, 1, 6, 2, 7, 8, 3))
        assert harness.side_output("late") == [("k", 1), ("k", 2), ("k", 3)]
