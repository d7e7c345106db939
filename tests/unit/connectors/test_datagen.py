import math

import numpy as np
import pyarrow as pa
import pytest

from tests.unit.connectors.reading import read_all, reader_of, records_of
from tidegate.connectors import datagen
from tidegate.connectors.datagen import DataGeneratorSource
from tidegate.connectors.source import Boundedness, InputStatus
from tidegate.core.clock import ManualClock
from tidegate.core.errors import ConfigError, MissingField, TypeMismatch
from tidegate.types.typeinfo import Types

PAIRS = Types.TUPLE([Types.LONG(), Types.LONG()])


def squares(start, count):
    numbers = np.arange(start, start + count)
    return pa.RecordBatch.from_arrays([numbers, numbers**2], names=["f0", "f1"])


def test_a_function_makes_every_record_from_its_index():
    source = DataGeneratorSource(lambda i: i * i, count=5)
    assert records_of(source, parallelism=2) == [[0, 1, 4], [9, 16]]


def test_a_columnar_function_makes_many_at_once():
    source = DataGeneratorSource(squares, type_info=PAIRS, count=5, columnar=True)
    assert records_of(source, parallelism=2) == [[(0, 0), (1, 1), (2, 4)], [(3, 9), (4, 16)]]
    assert reader_of(source).poll(3).batch.is_columnar


def test_without_a_count_it_never_ends():
    source = DataGeneratorSource(str)
    assert source.boundedness is Boundedness.CONTINUOUS_UNBOUNDED
    poll = reader_of(source).poll(2)
    assert (poll.batch.records, poll.status) == (["0", "1"], InputStatus.MORE_AVAILABLE)


def test_without_a_count_readers_take_turns():
    source = DataGeneratorSource(lambda i: i)
    readers = [reader_of(source, subtask=i, parallelism=3) for i in range(3)]
    first = [reader.poll(2).batch.records for reader in readers]
    assert first == [[0, 3], [1, 4], [2, 5]]
    assert [reader.poll(1).batch.records for reader in readers] == [[6], [7], [8]]


@pytest.mark.parametrize("columnar", [False, True])
def test_a_turn_continues_where_a_checkpoint_left_it(monkeypatch, columnar):
    monkeypatch.setattr(datagen, "_COLUMNAR_TURN", 4)
    generator = squares if columnar else (lambda i: (i, i * i))
    source = DataGeneratorSource(generator, type_info=PAIRS, columnar=columnar)
    seen = []
    for subtask in range(2):
        reader = reader_of(source, subtask=subtask, parallelism=2)
        for most in (3, 3, 2, 2):
            seen += reader.poll(most).batch.records
            reader = reader_of(source, splits=reader.snapshot())
    assert len(seen) == len(set(seen))
    assert {root for root, square in seen if square == root * root} >= set(range(16))


def test_a_columnar_batch_ends_with_its_turn(monkeypatch):
    monkeypatch.setattr(datagen, "_COLUMNAR_TURN", 4)
    source = DataGeneratorSource(squares, type_info=PAIRS, columnar=True)
    reader = reader_of(source, subtask=1, parallelism=2)
    roots = [[root for root, _ in reader.poll(6).batch.records] for _ in range(2)]
    assert roots == [[4, 5, 6, 7], [12, 13, 14, 15]]


def test_the_rate_is_kept_by_the_clock():
    clock = ManualClock()
    reader = reader_of(DataGeneratorSource(str, rate=10), clock=clock)
    assert reader.poll(100).batch is None
    assert not reader.is_available()
    clock.advance(0.35)
    assert reader.is_available()
    poll = reader.poll(100)
    assert (poll.batch.records, poll.status) == (["0", "1", "2"], InputStatus.NOTHING_AVAILABLE)
    clock.advance(0.1)
    assert reader.poll(100).batch.records == ["3"]


def test_a_reader_knows_when_the_next_record_is_due(monkeypatch):
    clock = ManualClock()
    reader = reader_of(DataGeneratorSource(str, count=4, rate=10), clock=clock)
    assert reader.available_in() == 0.0, "a test may move the clock at any time"
    monkeypatch.setattr(clock, "sleep_for", lambda seconds: seconds)
    assert reader.available_in() == pytest.approx(0.1)
    clock.advance(0.35)
    reader.poll(100)
    assert reader.available_in() == pytest.approx(0.05)
    clock.advance(1)
    assert reader.available_in() == 0.0
    reader.poll(100)
    assert reader.available_in() == math.inf, "nothing is left to wait for"


def test_what_was_not_read_in_time_is_made_up_for():
    clock = ManualClock()
    reader = reader_of(DataGeneratorSource(str, rate=10), clock=clock)
    reader.poll(1)
    clock.advance(5)
    poll = reader.poll(20)
    assert (len(poll.batch), poll.status) == (20, InputStatus.MORE_AVAILABLE)
    assert len(reader.poll(100).batch) == 30


@pytest.mark.parametrize("parallelism", [1, 2, 5])
def test_the_rate_is_that_of_all_readers_together(parallelism):
    clock = ManualClock()
    source = DataGeneratorSource(str, rate=100)
    readers = [
        reader_of(source, clock=clock, subtask=subtask, parallelism=parallelism)
        for subtask in range(parallelism)
    ]
    for reader in readers:
        reader.poll(1000)
    clock.advance(1)
    assert sum(len(reader.poll(1000).batch) for reader in readers) == 100


def test_the_rate_stays_when_fewer_readers_share_the_splits():
    clock = ManualClock()
    source = DataGeneratorSource(str, rate=100)
    splits = [s for hand in source.create_enumerator().next_splits(4).values() for s in hand]
    reader = reader_of(source, splits=splits, clock=clock)
    reader.poll(1)
    clock.advance(1)
    assert len(reader.poll(1000).batch) == 100


def test_a_rate_limited_source_ends():
    clock = ManualClock()
    reader = reader_of(DataGeneratorSource(str, count=3, rate=1), clock=clock)
    reader.poll(1)
    clock.advance(10)
    poll = reader.poll(10)
    assert (poll.batch.records, poll.status) == (["0", "1", "2"], InputStatus.END_OF_INPUT)


def test_records_before_a_failing_index_are_returned_first():
    reader = reader_of(DataGeneratorSource(lambda i: 1 / (2 - i), count=5))
    assert reader.poll(5).batch.records == [0.5, 1.0]
    with pytest.raises(ZeroDivisionError):
        reader.poll(5)


def test_a_generator_that_stops_is_an_error_and_no_hang():
    reader = reader_of(DataGeneratorSource(lambda i: next(iter(())), count=5))
    with pytest.raises(RuntimeError, match="raised StopIteration for index 0"):
        reader.poll(5)


@pytest.mark.parametrize(
    ("generator", "error", "complaint"),
    [
        (lambda start, count: squares(start, count - 1), TypeMismatch, "RecordBatch of 5 rows"),
        (lambda start, count: [1] * count, TypeMismatch, "RecordBatch of 5 rows, starting at 0"),
        (lambda start, count: squares(start, count).select(["f0"]), MissingField, "'f1'"),
    ],
)
def test_a_columnar_generator_must_return_what_was_asked_for(generator, error, complaint):
    source = DataGeneratorSource(generator, type_info=PAIRS, count=5, columnar=True)
    with pytest.raises(error, match=complaint):
        read_all(reader_of(source))


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"count": -1}, "count = -1"),
        ({"rate": 0}, "rate = 0"),
        ({"columnar": True}, "needs the records' type"),
    ],
)
def test_settings_without_sense_are_refused(settings, complaint):
    with pytest.raises(ConfigError, match=complaint):
        DataGeneratorSource(str, **settings)
