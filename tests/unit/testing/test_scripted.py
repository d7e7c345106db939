import pickle

import pytest

from tests.unit.connectors.reading import read_all, reader_of, records_of
from tidegate.connectors.source import Boundedness, InputStatus
from tidegate.core.clock import ManualClock
from tidegate.operators.endpoints.operators import SinkOperator
from tidegate.testing.harness import OperatorHarness
from tidegate.testing.scripted import (
    CollectingSink,
    End,
    Fail,
    Pause,
    ScriptedFailure,
    ScriptedSource,
)
from tidegate.types.typeinfo import Types


def test_every_script_is_a_split():
    assert records_of(ScriptedSource([1, 2], [3], []), parallelism=2) == [[1, 2], [3]]


def test_the_records_before_a_failure_come_first_and_the_next_attempt_passes():
    source = ScriptedSource([1, 2, Fail("boom"), 3])
    reader = reader_of(source)
    assert reader.poll(10).batch.records == [1, 2]
    with pytest.raises(ScriptedFailure, match="boom"):
        reader.poll(10)
    again = reader_of(source, splits=reader.snapshot(), attempt=2)
    assert read_all(again) == [3]


def test_a_failure_may_repeat_for_some_attempts():
    source = ScriptedSource([Fail(until_attempt=2), 1])
    for attempt in (1, 2):
        with pytest.raises(ScriptedFailure):
            reader_of(source, attempt=attempt).poll(1)
    assert read_all(reader_of(source, attempt=3)) == [1]


def test_a_pause_lasts_its_seconds():
    clock = ManualClock()
    source = ScriptedSource([1, Pause(2.0), 2])
    assert source.boundedness is Boundedness.CONTINUOUS_UNBOUNDED
    reader = reader_of(source, clock=clock)
    assert reader.poll(10).batch.records == [1]
    assert reader.poll(10).status is InputStatus.NOTHING_AVAILABLE
    clock.advance(2)
    poll = reader.poll(10)
    assert (poll.batch.records, poll.status) == ([2], InputStatus.END_OF_INPUT)


def test_nothing_after_the_end_is_read():
    assert records_of(ScriptedSource([1, End(), 2])) == [[1]]
    assert records_of(ScriptedSource([End(), 2])) == [[]]


def test_a_type_makes_the_records_columns():
    reader = reader_of(ScriptedSource([1, 2], type_info=Types.LONG()))
    assert reader.poll(10).batch.columns.to_pydict() == {"value": [1, 2]}


def test_a_collecting_sink_remembers_what_its_copies_wrote():
    sink = CollectingSink()
    with OperatorHarness(SinkOperator(pickle.loads(pickle.dumps(sink)))) as harness:
        harness.process([1, 2])
    assert sink.records == [1, 2]
