"""Typed batches that are decoded piece by piece: nobody notices."""

import pytest

from tidegate.core.errors import UserFunctionError
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
