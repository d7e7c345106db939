import pytest

from tests.unit.connectors.reading import reader_of, records_of
from tidegate.connectors.collection import CollectionSource
from tidegate.connectors.sequence import NumberSequenceSource
from tidegate.connectors.splits import even_ranges
from tidegate.core.errors import ConfigError, TypeMismatch
from tidegate.types.arrow import arrow_format
from tidegate.types.typeinfo import Types


def test_every_reader_has_a_range_of_the_collection():
    assert records_of(CollectionSource("abcde"), parallelism=2) == [["a", "b", "c"], ["d", "e"]]


def test_more_readers_than_records_leave_some_without():
    assert records_of(CollectionSource([1]), parallelism=3) == [[1], [], []]
    assert records_of(CollectionSource([]), parallelism=2) == [[], []]


def test_typed_records_come_as_columns():
    source = CollectionSource([1, 2, 3], Types.LONG(), arrow_format(Types.LONG()))
    batch = reader_of(source).poll(2).batch
    assert batch.is_columnar
    assert batch.columns.to_pydict() == {"value": [1, 2]}


def test_a_record_of_another_type_is_found_before_the_job_starts():
    with pytest.raises(TypeMismatch, match="'x'"):
        CollectionSource([1, "x"], Types.LONG(), arrow_format(Types.LONG()))


def test_a_collection_tells_how_many_records_wait():
    reader = reader_of(CollectionSource(range(10)))
    reader.poll(4)
    assert reader.pending_records() == 6


def test_a_sequence_includes_its_end():
    assert records_of(NumberSequenceSource(-2, 2)) == [[-2, -1, 0, 1, 2]]
    assert records_of(NumberSequenceSource(5, 5), parallelism=2) == [[5], []]


def test_a_sequence_is_columns_where_typed_and_integers_where_not():
    source = NumberSequenceSource(1, 1000)
    assert reader_of(source).poll(10).batch.is_columnar
    untyped = reader_of(source, typed=False).poll(10).batch
    assert untyped.format is None
    assert untyped.records == list(range(1, 11))


def test_a_sequence_that_ends_before_it_starts_is_refused():
    with pytest.raises(ConfigError, match="not below the start, 3"):
        NumberSequenceSource(3, 2)


@pytest.mark.parametrize(
    ("count", "parts", "ranges"),
    [(7, 3, [(0, 3), (3, 5), (5, 7)]), (2, 4, [(0, 1), (1, 2)]), (0, 2, [])],
)
def test_even_ranges_differ_by_one_at_most(count, parts, ranges):
    assert even_ranges(0, count, parts) == ranges
