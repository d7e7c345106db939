import math

from tests.unit.connectors.reading import reader_of
from tidegate.connectors.sequence import NumberSequenceSource
from tidegate.connectors.source import InputStatus
from tidegate.connectors.splits import KnownSplits, SequentialReader


def letters(parallelism):
    return list("abcde")


def test_splits_are_dealt_once():
    known = KnownSplits(letters)
    assert not known.is_exhausted()
    assert known.next_splits(2) == {0: ["a", "c", "e"], 1: ["b", "d"]}
    assert known.is_exhausted()
    assert known.next_splits(2) == {}


def test_splits_that_come_back_are_dealt_again():
    known = KnownSplits(letters)
    known.next_splits(2)
    known.add_back(["d"])
    assert not known.is_exhausted()
    assert known.next_splits(2) == {0: ["d"]}


def test_splits_that_come_back_before_any_was_dealt_are_all_there_are():
    known = KnownSplits(letters)
    known.restore(known.snapshot())
    assert known.next_splits(1) == {0: list("abcde")}


def test_a_restored_enumerator_deals_what_was_left():
    first = KnownSplits(letters)
    first.next_splits(1)
    first.add_back(["b"])
    second = KnownSplits(letters)
    second.restore(first.snapshot())
    assert second.next_splits(1) == {0: ["b"]}
    assert second.is_exhausted()


def splits_of(source):
    return source.create_enumerator().next_splits(1)[0]


def test_a_reader_reads_splits_that_come_later():
    source = NumberSequenceSource(0, 3)
    reader = reader_of(source, no_more=False)
    poll = reader.poll(10)
    assert (poll.batch.records, poll.status) == ([0, 1, 2, 3], InputStatus.NOTHING_AVAILABLE)
    assert not reader.is_available()
    assert reader.snapshot() == []
    reader.add_splits(splits_of(NumberSequenceSource(7, 8)))
    assert reader.is_available()
    assert reader.poll(10).batch.records == [7, 8]


def test_a_reader_without_splits_needs_not_be_asked_until_it_gets_some():
    reader = SequentialReader(lambda split: None)
    assert not reader.is_available()
    assert reader.available_in() == math.inf


def test_a_reader_that_waits_for_the_input_of_a_split_is_asked_often():
    """Readers of users that extend this one may know when they have input, but not in advance."""

    class Waiting(SequentialReader):
        def is_available(self):
            return False

    reader = Waiting(lambda split: None)
    reader.add_splits(["a split"])
    assert reader.available_in() == 0.0
