"""Records that user code fails on: how they are found, named and skipped."""

import pickle
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.common import WatermarkStrategy
from tidegate.connectors.sink import Sink, SinkWriter
from tidegate.connectors.source import InputStatus, Poll, Source, SourceReader
from tidegate.connectors.splits import KnownSplits
from tidegate.core.errors import MissingField, UndecodableRecord, UserError, UserFunctionError
from tidegate.core.poison import PoisonOrders, PoisonRecord
from tidegate.operators.aggregations.choice import aggregation_operator
from tidegate.operators.aggregations.kinds import Aggregation
from tidegate.operators.batches import MapBatchesOperator
from tidegate.operators.endpoints.operators import (
    SinkFunctionOperator,
    SinkOperator,
    SourceOperator,
)
from tidegate.operators.endpoints.two_phase_commit import (
    TwoPhaseCommitOperator,
    TwoPhaseCommitSinkFunction,
)
from tidegate.operators.functions import (
    BroadcastProcessFunction,
    CoFlatMapFunction,
    CoProcessFunction,
    FilterFunction,
    KeyedProcessFunction,
    MapFunction,
    ProcessFunction,
    SinkFunction,
)
from tidegate.operators.keyed import (
    KeyedFilterOperator,
    KeyedFlatMapOperator,
    KeyedMapOperator,
    KeyedProcessOperator,
    KeyedReduceOperator,
)
from tidegate.operators.poison import DEAD_LETTERS, digest_of, guarded
from tidegate.operators.stateless import (
    FilterOperator,
    FlatMapOperator,
    MapOperator,
    ProcessOperator,
    ProjectOperator,
)
from tidegate.operators.two_inputs.broadcast import BroadcastProcessOperator
from tidegate.operators.two_inputs.co import CoFlatMapOperator, CoProcessOperator
from tidegate.state.descriptors import ValueStateDescriptor
from tidegate.state.keys.selection import select_key
from tidegate.stream.batch import Batch
from tidegate.testing.harness import OperatorHarness
from tidegate.types.arrow import arrow_format
from tidegate.types.row import Row
from tidegate.types.typeinfo import Types

POISON = "ERROR"
WORDS = ["a", POISON, "b", "c", POISON, "a"]
AT_ONCE = PoisonOrders(skips_at_once=True)


def refuse(word):
    if word == POISON:
        raise RuntimeError(f"cannot do {word}")


def same(word):
    refuse(word)
    return word


def twice(word):
    yield word
    refuse(word)
    yield word


class Processing(ProcessFunction):
    def process_element(self, value, ctx):
        return twice(value)


class TellsTimes(KeyedProcessFunction):
    """Counts the words of its key; the count is changed before it fails."""

    def open(self, runtime_context):
        self.count = runtime_context.get_state(ValueStateDescriptor("count"))

    def process_element(self, value, ctx):
        self.count.update((self.count.value() or 0) + 1)
        yield value, self.count.value()
        refuse(value)


class Both(CoFlatMapFunction, CoProcessFunction):
    flat_map1 = flat_map2 = staticmethod(twice)

    def process_element1(self, value, ctx):
        return twice(value)

    process_element2 = process_element1


class Broadcasting(BroadcastProcessFunction):
    def process_element(self, value, ctx):
        return twice(value)

    process_broadcast_element = process_element


class AsMap(MapFunction):
    map = staticmethod(same)


class AsFilter(FilterFunction):
    def filter(self, value):
        refuse(value)
        return True


def letters(harness):
    return harness.side_output(DEAD_LETTERS)


def by_word(operator_type, *more):
    return lambda: operator_type(*more, [select_key(lambda word: word)])


ONCE = ["a", "b", "c", "a"]
TWICE = ["a", "a", "b", "b", "c", "c", "a", "a"]


COUNTED = [("a", 1), ("b", 1), ("c", 1), ("a", 2)]
CASES = {
    "map": (lambda: MapOperator(same), 0, ONCE),
    "filter": (lambda: FilterOperator(lambda word: same(word) is not None), 0, ONCE),
    "verdict": (lambda: FilterOperator(lambda w: np.zeros(2) if w == POISON else True), 0, ONCE),
    "flat_map": (lambda: FlatMapOperator(twice), 0, TWICE),
    "process": (lambda: ProcessOperator(Processing()), 0, TWICE),
    "flat_map1": (lambda: CoFlatMapOperator(Both()), 0, TWICE),
    "flat_map2": (lambda: CoFlatMapOperator(Both()), 1, TWICE),
    "process_element2": (lambda: CoProcessOperator(Both()), 1, TWICE),
    "beside a broadcast": (lambda: BroadcastProcessOperator(Broadcasting(), []), 0, TWICE),
    "broadcast": (lambda: BroadcastProcessOperator(Broadcasting(), []), 1, TWICE),
    "keyed map": (by_word(KeyedMapOperator, AsMap()), 0, ONCE),
    "keyed filter": (by_word(KeyedFilterOperator, AsFilter()), 0, ONCE),
    "keyed flat_map": (by_word(KeyedFlatMapOperator, twice), 0, TWICE),
    "keyed process": (by_word(KeyedProcessOperator, TellsTimes()), 0, COUNTED),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("timed", [False, True], ids=["untimed", "timed"])
def test_the_records_around_a_poison_record_are_processed(name, timed):
    make, input_index, expected = CASES[name]
    with OperatorHarness(make(), poison=AT_ONCE) as harness:
        stamps = np.arange(len(WORDS), dtype=np.int64) if timed else None
        harness.process_batch(Batch(records=list(WORDS), timestamps=stamps), input_index)
        assert harness.output == expected
        assert [letter.record for letter in letters(harness)] == [repr(POISON)] * 2
        if timed:
            found = [int(t) for batch in harness.batches for t in batch.timestamps]
            assert sorted(set(found)) == [0, 2, 3, 5]
            assert len(found) == len(expected)


@pytest.mark.parametrize("name", CASES)
def test_a_record_that_must_not_be_skipped_is_named(name):
    make, input_index, _ = CASES[name]
    failures = []
    for _attempt in range(2):
        with OperatorHarness(make(), poison=PoisonOrders()) as harness:
            with pytest.raises(UserFunctionError) as failure:
                harness.process(WORDS, input_index=input_index)
            failures.append(pickle.loads(pickle.dumps(failure.value)))
            assert letters(harness) == []
    assert failures[0].poison == failures[1].poison == PoisonRecord("Tested", digest_of(POISON))
    assert failures[0].args[3] == repr(POISON)


def test_only_the_ordered_records_are_skipped():
    ordered = PoisonOrders(frozenset({PoisonRecord("Tested", digest_of("x"))}))
    with OperatorHarness(MapOperator(lambda word: 1 // (word not in "xy")), poison=ordered) as one:
        one.process(["a", "x", "a", "x"])
        assert (one.output, len(letters(one))) == ([1, 1], 2)
        with pytest.raises(UserFunctionError) as failure:
            one.process(["x", "a", "y"])
        assert failure.value.poison.digest == digest_of("y")
        assert (one.output, len(letters(one))) == ([1, 1, 1], 3)


def test_nobody_watches_by_default():
    with OperatorHarness(MapOperator(same)) as harness:
        with pytest.raises(UserFunctionError) as failure:
            harness.process(WORDS)
        assert failure.value.poison is None
        process = harness.operator.process
        assert guarded(process, harness.context, harness) == process


def test_a_dead_letter_tells_all_there_is_to_know():
    with OperatorHarness(MapOperator(same), name="Parse", uid="parse", poison=AT_ONCE) as harness:
        harness.clock.advance(60)
        harness.process([POISON])
        [letter] = letters(harness)
        assert (letter.operator, letter.uid, letter.subtask) == ("Parse", "parse", 0)
        assert (letter.job_id, letter.position) == ("harness", None)
        assert (letter.raw_format, pickle.loads(letter.raw)) == ("pickle", POISON)
        assert letter.error == "RuntimeError: cannot do ERROR"
        assert letter.traceback.startswith("Traceback (most recent call last)")
        assert "def refuse" not in letter.traceback and "in refuse" in letter.traceback
        assert letter.failed_at.timestamp() is not None
        warning = "WARNING Parse (1/1): skipped the record 'ERROR': RuntimeError: cannot do ERROR"
        assert harness.console == [warning]
        assert arrow_format(harness.side_batches[DEAD_LETTERS][0].format.type_info) is not None


def test_what_a_function_did_to_its_state_before_it_failed_stays():
    pairs = [("a", 1), ("a", POISON), ("a", 3)]

    class Counts(TellsTimes):
        def process_element(self, value, ctx):
            return super().process_element(value[1], ctx)

    operator = KeyedProcessOperator(Counts(), [select_key(0)])
    with OperatorHarness(operator, poison=AT_ONCE) as harness:
        harness.process(pairs)
        assert harness.output == [(1, 1), (3, 3)]


def test_a_poison_record_is_found_within_a_batch_that_fails_as_a_whole():
    def halved(batch: pa.RecordBatch) -> pa.RecordBatch:
        if -1 in batch.column(0).to_pylist():
            raise ValueError("negative")
        return batch

    numbers = Types.LONG()
    operator = MapBatchesOperator(halved, arrow_format(numbers))
    records = [*range(100), -1, *range(100, 150), -1, -1, 150]
    with OperatorHarness(operator, poison=AT_ONCE) as harness:
        harness.process(records, type_info=numbers)
        assert harness.output == list(range(151))
        assert [letter.record for letter in letters(harness)] == ["-1"] * 3


SALES = Types.TUPLE([Types.STRING(), Types.LONG()])


@pytest.mark.parametrize("type_info", [SALES, None], ids=["typed", "untyped"])
@pytest.mark.parametrize("batches", [1, 2])
def test_what_cannot_be_added_is_skipped(type_info, batches):
    operator = aggregation_operator(Aggregation.SUM, 1, select_key(0, type_info), type_info)
    records = [("a", 1), ("a", "three"), ("b", 5), ("a", 2), ("a", "three")]
    format = None if type_info is None else arrow_format(type_info)
    with OperatorHarness(operator, poison=AT_ONCE) as harness:
        for _ in range(batches):
            harness.process_batch(Batch.of_records(list(records), format))
        assert harness.output[:3] == [("a", 1), ("b", 5), ("a", 3)]
        assert harness.output[3:] == [("a", 4), ("b", 10), ("a", 6)][: 3 * (batches - 1)]
        assert len(letters(harness)) == 2 * batches


def test_the_overflow_of_a_sum_is_nobodys_fault_alone():
    operator = aggregation_operator(Aggregation.SUM, 1, select_key(0, SALES), SALES)
    with OperatorHarness(operator, poison=AT_ONCE) as harness:
        with pytest.raises(UserFunctionError) as failure:
            harness.process([("a", 2**63 - 1), ("a", 1), ("a", 2)], type_info=SALES)
        assert failure.value.poison is None


def test_a_reduction_continues_without_the_record_it_fails_on():
    operator = KeyedReduceOperator(lambda a, b: (a[0], a[1] + b[1]), [select_key(0)])
    with OperatorHarness(operator, poison=AT_ONCE) as harness:
        harness.process([("a", 1), ("a", None), ("a", 2)])
        assert harness.output == [("a", 1), ("a", 3)]


@pytest.mark.parametrize("bad", [{}, {"key": {"a": "dict"}}], ids=["no key", "unhashable"])
def test_a_record_without_a_key_is_skipped(bad):
    operator = KeyedMapOperator(AsMap(), [select_key(lambda record: record["key"])])
    good = [{"key": number} for number in range(5)]
    with OperatorHarness(operator, poison=AT_ONCE) as harness:
        harness.process([*good[:2], bad, *good[2:], bad])
        assert harness.output == good
        assert len(letters(harness)) == 2


def test_a_tuple_that_is_too_short_cannot_be_projected():
    operator = ProjectOperator([1])
    with OperatorHarness(operator, poison=AT_ONCE) as harness:
        harness.process([(1, 2), (3,), (4, 5)])
        assert harness.output == [(2,), (5,)]
    with OperatorHarness(operator) as harness, pytest.raises(MissingField):
        harness.process([(1, 2), (3,)])


# --- the ends of a job --------------------------------------------------------------------------


class Kept(SinkFunction):
    def __init__(self, taken):
        self.taken = taken

    def invoke(self, value, context):
        self.taken.append(same(value))


class KeptTransaction(TwoPhaseCommitSinkFunction):
    def __init__(self, taken):
        self.taken = taken

    def begin_transaction(self):
        return "transaction"

    def invoke(self, transaction, value, context):
        self.taken.append(same(value))

    def pre_commit(self, transaction):
        pass

    commit = abort = pre_commit


class KeptRows(Sink, SinkWriter):
    """Writes the rows up to one that it cannot write."""

    def __init__(self, taken):
        self.taken = taken

    def create_writer(self, context):
        return self

    def write(self, batch):
        for place, record in enumerate(batch.records):
            if record == POISON:
                error = UserError("the table has no room for it")
                error.suspects = range(place, place + 1)
                raise error
            self.taken.append(record)


@pytest.mark.parametrize(
    "make",
    [
        lambda taken: SinkFunctionOperator(Kept(taken)),
        lambda taken: SinkFunctionOperator(lambda word: taken.append(same(word))),
        lambda taken: TwoPhaseCommitOperator(KeptTransaction(taken)),
        lambda taken: SinkOperator(KeptRows(taken)),
    ],
    ids=["sink function", "function", "transactions", "sink"],
)
def test_sinks_continue_after_a_record_they_cannot_write(make):
    taken = []
    with OperatorHarness(make(taken), poison=AT_ONCE, copy=False) as harness:
        harness.process(WORDS)
        assert taken == ONCE
        assert len(letters(harness)) == 2


def test_a_record_that_does_not_fit_its_stream_never_reaches_the_sink():
    taken = []
    numbers = arrow_format(Types.LONG())
    with OperatorHarness(SinkOperator(KeptRows(taken)), poison=AT_ONCE, copy=False) as harness:
        harness.process_batch(Batch.of_records([1, "two", 3], numbers))
        assert taken == [1, 3]
        assert [pickle.loads(letter.raw) for letter in letters(harness)] == ["two"]


class Numbered(Source, SourceReader):
    """Numbers as text, at positions; reads them in one poll."""

    def create_enumerator(self):
        return KnownSplits(lambda parallelism: [0])

    def create_reader(self, context):
        self.context = context
        return self

    def add_splits(self, splits):
        pass

    def snapshot(self):
        return []

    def poll(self, max_records):
        records = []
        for position, raw in enumerate([b"1", b"two", b"3"]):
            try:
                records.append(int(raw))
            except ValueError as error:
                self.context.undecodable(f"numbers@{position}", raw, error)
        return Poll(Batch.of_records(records), InputStatus.END_OF_INPUT)


def test_a_source_leaves_out_what_it_cannot_decode():
    with OperatorHarness(SourceOperator(Numbered()), poison=AT_ONCE) as harness:
        harness.assign_all_splits()
        harness.run_slice()
        assert harness.output == [1, 3]
        [letter] = letters(harness)
        assert (letter.position, letter.raw, letter.raw_format) == ("numbers@1", b"two", "bytes")
        assert letter.error.startswith("ValueError: invalid literal")


def test_what_a_source_cannot_decode_is_known_by_its_position():
    with OperatorHarness(SourceOperator(Numbered()), poison=PoisonOrders()) as harness:
        with pytest.raises(UserFunctionError, match="numbers@1") as failure:
            harness.run_slice()
        assert failure.value.poison == PoisonRecord("Tested", digest_of(b"two"), "numbers@1")


def test_without_a_choice_a_source_fails_on_what_it_cannot_decode():
    said = "numbers@1: the record b'two' cannot be decoded: ValueError"
    with (
        OperatorHarness(SourceOperator(Numbered())) as harness,
        pytest.raises(UndecodableRecord, match=said),
    ):
        harness.run_slice()


class Given(Numbered):
    def poll(self, max_records):
        return Poll(Batch.of_records([1, "two", 3]), InputStatus.END_OF_INPUT)


def test_a_source_leaves_out_what_has_no_timestamp():
    strategy = WatermarkStrategy.for_monotonous_timestamps()
    stamped = strategy.with_timestamp_assigner(lambda record, _: record + 0)
    with OperatorHarness(SourceOperator(Given(), strategy=stamped), poison=AT_ONCE) as harness:
        harness.assign_all_splits()
        harness.run_slice()
        assert harness.timed_output == [(1, 1), (3, 3)]
        assert [letter.record for letter in letters(harness)] == ["'two'"]


# --- guards behind guards -----------------------------------------------------------------------


def test_the_failure_of_a_later_operator_is_not_attributed_to_an_earlier_one():
    calls = []
    with OperatorHarness(MapOperator(same), uid="later", poison=PoisonOrders()) as later:
        first = MapOperator(lambda word: calls.append(word) or word)
        with OperatorHarness(first, poison=AT_ONCE, copy=False) as harness:
            harness.emit = later.process_batch
            with pytest.raises(UserFunctionError) as failure:
                harness.process(WORDS)
            assert failure.value.poison.operator_id == "later"
            assert calls == WORDS
            assert letters(harness) == []


# --- digests ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Point:
    x: int
    tags: tuple = ()


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text() | st.binary(),
    lambda inner: (
        st.lists(inner)
        | st.tuples(inner, inner)
        | st.dictionaries(st.text(), inner)
        | st.frozensets(st.text() | st.integers())
        | st.builds(Row, inner, inner)
        | st.builds(Point, st.integers(), st.tuples(inner))
    ),
    max_leaves=8,
)


@given(VALUES)
def test_a_copy_of_a_record_has_its_digest(value):
    assert digest_of(pickle.loads(pickle.dumps(value))) == digest_of(value)


@given(VALUES, VALUES)
def test_records_with_the_same_digest_are_equal(one, other):
    if digest_of(one) == digest_of(other):
        assert one == other


def test_a_digest_does_not_tell_one_object_from_two():
    word = "".join(["w", "ord"])
    assert digest_of((word, word)) == digest_of((word, "".join(["wo", "rd"])))
    assert digest_of(Row(word, word)) == digest_of(Row(word, "".join(["wo", "rd"])))


def test_records_of_classes_that_nobody_finds_by_name_have_a_digest():
    class Local:
        def __init__(self, value):
            self.value = value

    assert digest_of(Local(1)) == digest_of(Local(1)) != digest_of(Local(2))


def test_a_record_that_holds_itself_has_a_digest():
    record = ["a"]
    record.append(record)
    assert digest_of(record) == digest_of(record)
