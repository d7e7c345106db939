from collections import namedtuple
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pytest

from tidegate.core.errors import GraphError, MissingField, TypeMismatch, UserFunctionError
from tidegate.operators.aggregations.choice import aggregation_operator, aggregation_output_type
from tidegate.operators.aggregations.columnar import ColumnarAggregation
from tidegate.operators.aggregations.kinds import Aggregation
from tidegate.state.keys.selection import select_key
from tidegate.stream.batch import Batch
from tidegate.testing.harness import OperatorHarness, as_batch
from tidegate.types.arrow import arrow_format
from tidegate.types.infer import as_type_info
from tidegate.types.row import Row
from tidegate.types.typeinfo import Types

SALES = Types.TUPLE([Types.STRING(), Types.LONG(), Types.STRING()])
RECORDS = [("a", 3, "x"), ("b", 5, "y"), ("a", 1, "z"), ("a", 3, "w"), ("b", 9, "v"), ("b", 9, "u")]
RESULTS = {
    Aggregation.SUM: [
        ("a", 3, "x"),
        ("b", 5, "y"),
        ("a", 4, "x"),
        ("a", 7, "x"),
        ("b", 14, "y"),
        ("b", 23, "y"),
    ],
    Aggregation.MIN: [
        ("a", 3, "x"),
        ("b", 5, "y"),
        ("a", 1, "x"),
        ("a", 1, "x"),
        ("b", 5, "y"),
        ("b", 5, "y"),
    ],
    Aggregation.MAX: [
        ("a", 3, "x"),
        ("b", 5, "y"),
        ("a", 3, "x"),
        ("a", 3, "x"),
        ("b", 9, "y"),
        ("b", 9, "y"),
    ],
    Aggregation.MIN_BY: [
        ("a", 3, "x"),
        ("b", 5, "y"),
        ("a", 1, "z"),
        ("a", 1, "z"),
        ("b", 5, "y"),
        ("b", 5, "y"),
    ],
    Aggregation.MAX_BY: [
        ("a", 3, "x"),
        ("b", 5, "y"),
        ("a", 3, "x"),
        ("a", 3, "x"),
        ("b", 9, "v"),
        ("b", 9, "v"),
    ],
    Aggregation.COUNT: [("a", 1), ("b", 1), ("a", 2), ("a", 3), ("b", 2), ("b", 3)],
}

Sale = namedtuple("Sale", "shop amount note")


@dataclass(frozen=True)
class Order:
    shop: str
    amount: int
    note: str


def results(aggregation, field, batches, type_info=None, key=0):
    operator = aggregation_operator(aggregation, field, select_key(key, type_info), type_info)
    with OperatorHarness(operator) as harness:
        for records in batches:
            harness.process(records, type_info=type_info)
        return harness.output


@pytest.mark.parametrize("aggregation", Aggregation)
@pytest.mark.parametrize("type_info", [SALES, None], ids=["typed", "untyped"])
@pytest.mark.parametrize("batches", [1, 2, 6])
def test_every_record_gives_a_result_in_input_order(aggregation, type_info, batches):
    size = len(RECORDS) // batches
    parts = [RECORDS[start : start + size] for start in range(0, len(RECORDS), size)]
    assert results(aggregation, 1, parts, type_info) == RESULTS[aggregation]


@pytest.mark.parametrize("aggregation", Aggregation)
def test_typed_streams_are_aggregated_on_columns(aggregation):
    operator = aggregation_operator(aggregation, 1, select_key(0, SALES), SALES)
    assert isinstance(operator, ColumnarAggregation)


@pytest.mark.parametrize(
    ("make", "key", "field"),
    [
        (Row, 0, 1),
        (lambda a, b, c: Row(shop=a, amount=b, note=c), "shop", "amount"),
        (Sale, "shop", "amount"),
        (Sale, 0, 1),
        (Order, "shop", "amount"),
        (lambda *fields: list(fields), 0, 1),
        (lambda a, b, c: {"shop": a, "amount": b, "note": c}, "shop", "amount"),
    ],
    ids=["row", "named row", "named tuple", "named tuple by position", "dataclass", "list", "dict"],
)
@pytest.mark.parametrize(
    "aggregation",
    [Aggregation.SUM, Aggregation.MIN, Aggregation.MAX, Aggregation.MIN_BY, Aggregation.MAX_BY],
)
def test_untyped_records_keep_their_shape(make, key, field, aggregation):
    records = [make(*record) for record in RECORDS]
    expected = [make(*record) for record in RESULTS[aggregation]]
    assert results(aggregation, field, [records], key=key) == expected


def test_records_of_a_dataclass_stream_are_aggregated_by_name():
    orders = [Order(*record) for record in RECORDS]
    found = results(Aggregation.MAX_BY, "amount", [orders], as_type_info(Order), "shop")
    assert found == [Order(*record) for record in RESULTS[Aggregation.MAX_BY]]


@pytest.mark.parametrize("type_info", [Types.LONG(), None])
def test_single_values_are_their_own_field(type_info):
    found = results(Aggregation.SUM, 0, [[1, 2, 1]], type_info, key=lambda x: x)
    assert found == [1, 2, 2]


def test_results_that_went_out_do_not_change_when_records_are_lists():
    operator = aggregation_operator(Aggregation.SUM, 1, select_key(0), None)
    with OperatorHarness(operator) as harness:
        harness.process([["a", 1], ["a", 2]])
        harness.output[1][1] = 1000
        harness.process([["a", 3]])
        assert harness.output == [["a", 1], ["a", 1000], ["a", 6]]


@pytest.mark.parametrize("type_info", [SALES, None], ids=["typed", "untyped"])
@pytest.mark.parametrize(
    ("aggregation", "totals"),
    [
        (Aggregation.SUM, [None, 2, 2, 5]),
        (Aggregation.MIN, [None, 2, 2, 2]),
        (Aggregation.MAX, [None, 2, 2, 3]),
        (Aggregation.MIN_BY, [None, 2, 2, 2]),
        (Aggregation.MAX_BY, [None, 2, 2, 3]),
    ],
)
@pytest.mark.parametrize("batches", [1, 4])
def test_null_counts_for_nothing_once_there_is_a_value(type_info, aggregation, totals, batches):
    records = [("a", value, "x") for value in (None, 2, None, 3)]
    size = len(records) // batches
    parts = [records[start : start + size] for start in range(0, len(records), size)]
    assert [result[1] for result in results(aggregation, 1, parts, type_info)] == totals


@pytest.mark.parametrize("type_info", [SALES, None], ids=["typed", "untyped"])
def test_a_counted_field_counts_where_it_is_not_null(type_info):
    records = [("a", 1, None), ("a", None, None), (None, 2, None), ("a", 3, None)]
    found = results(Aggregation.COUNT, 1, [records], type_info)
    assert found == [("a", 1), ("a", 1), (None, 1), ("a", 2)]
    found = results(Aggregation.COUNT, None, [records], type_info)
    assert found == [("a", 1), ("a", 2), (None, 1), ("a", 3)]


def test_keys_of_several_fields_are_counted_as_tuples():
    found = results(Aggregation.COUNT, None, [RECORDS], SALES, key=(0, 1))
    assert found[-2:] == [(("b", 9), 1), (("b", 9), 2)]


def test_a_count_is_typed_by_key_and_long():
    assert aggregation_output_type(Aggregation.COUNT, select_key(0, SALES), SALES) == Types.TUPLE(
        [Types.STRING(), Types.LONG()]
    )
    assert aggregation_output_type(Aggregation.SUM, select_key(0, SALES), SALES) is SALES
    untyped = select_key(lambda record: record[0] + "", SALES)
    assert aggregation_output_type(Aggregation.COUNT, untyped, SALES) is None


def test_a_typed_stream_keyed_by_a_function_is_aggregated_all_the_same():
    found = results(Aggregation.SUM, 1, [RECORDS], SALES, key=lambda record: record[0] + "!")
    assert found == RESULTS[Aggregation.SUM]


def test_floats_are_added_up_in_input_order():
    typed = Types.TUPLE([Types.STRING(), Types.DOUBLE()])
    rng = np.random.default_rng(0)
    values = rng.normal(0, 1e6, 5_000) * 10.0 ** rng.integers(-12, 12, 5_000)
    keys = rng.choice(["hot", "a", "b", "c"], 5_000, p=[0.97, 0.01, 0.01, 0.01])
    records = list(zip(keys.tolist(), values.tolist(), strict=True))
    totals = {}
    expected = []
    for key, value in records:
        totals[key] = totals.get(key, 0.0) + value if key in totals else value
        expected.append((key, totals[key]))
    found = results(Aggregation.SUM, 1, [records[:2000], records[2000:]], typed)
    assert found == expected


def test_both_zeros_are_one_key_and_the_first_is_shown():
    typed = Types.TUPLE([Types.DOUBLE(), Types.LONG()])
    found = results(Aggregation.SUM, 1, [[(-0.0, 1), (0.0, 2)]], typed)
    assert repr(found) == "[(-0.0, 1), (-0.0, 3)]"


@pytest.mark.parametrize(
    ("kind", "limit"),
    [
        (Types.BYTE(), 127),
        (Types.SHORT(), 2**15 - 1),
        (Types.INT(), 2**31 - 1),
        (Types.LONG(), 2**63 - 1),
    ],
)
@pytest.mark.parametrize("sign", [1, -1])
def test_a_sum_beyond_its_type_fails_after_the_results_before_it(kind, limit, sign):
    typed = Types.TUPLE([Types.STRING(), kind])
    edge = limit if sign > 0 else -limit - 1
    operator = aggregation_operator(Aggregation.SUM, 1, select_key(0, typed), typed)
    with OperatorHarness(operator) as harness:
        harness.process([("a", edge), ("b", 1)], type_info=typed)
        with pytest.raises(TypeMismatch, match=f"adding {sign} to the sum of field 'f1' of key"):
            harness.process([("b", 1), ("a", sign), ("b", 1)], type_info=typed)
        assert harness.output == [("a", edge), ("b", 1), ("b", 2)]


def test_a_sum_that_comes_to_the_limit_and_back_is_right():
    typed = Types.TUPLE([Types.STRING(), Types.LONG()])
    edge = 2**63 - 1
    found = results(Aggregation.SUM, 1, [[("a", edge), ("b", -edge)], [("a", -5), ("a", 5)]], typed)
    assert found[2:] == [("a", edge - 5), ("a", edge)]


def test_integers_of_any_size_are_added_by_python():
    typed = Types.TUPLE([Types.STRING(), Types.BIG_INT()])
    assert results(Aggregation.SUM, 1, [[("a", 2**70), ("a", 1)]], typed)[1] == ("a", 2**70 + 1)


def test_text_is_added_up_as_python_does():
    typed = Types.TUPLE([Types.STRING(), Types.STRING()])
    assert results(Aggregation.SUM, 1, [[("a", "x"), ("a", "y")]], typed) == [
        ("a", "x"),
        ("a", "xy"),
    ]


def test_what_cannot_be_added_fails_with_the_record():
    operator = aggregation_operator(Aggregation.SUM, 1, select_key(0), None)
    with OperatorHarness(operator) as harness:
        with pytest.raises(UserFunctionError, match=r"record \('a', 'one'\)"):
            harness.process([("a", 1), ("b", 2), ("a", "one"), ("a", 3)])
        assert harness.output == [("a", 1), ("b", 2)]


@pytest.mark.parametrize("kind", [Types.BOOLEAN(), Types.SQL_DATE()])
def test_the_sum_of_what_has_none_is_refused_before_the_job_starts(kind):
    typed = Types.TUPLE([Types.STRING(), kind])
    with pytest.raises(GraphError, match="choose a numeric field"):
        aggregation_operator(Aggregation.SUM, 1, select_key(0, typed), typed)


@pytest.mark.parametrize("field", [3, "amount", -1])
def test_a_missing_field_is_named_before_the_job_starts(field):
    with pytest.raises(MissingField, match="f0, f1, f2"):
        aggregation_operator(Aggregation.SUM, field, select_key(0, SALES), SALES)


def test_a_field_of_a_single_value_fails_with_the_record():
    with pytest.raises(UserFunctionError, match="a single value has only field 0"):
        results(Aggregation.MAX, 1, [[5]], key=lambda x: 0)


@pytest.mark.parametrize("aggregation", Aggregation)
@pytest.mark.parametrize("type_info", [SALES, None], ids=["typed", "untyped"])
def test_an_aggregation_resumes_from_its_snapshot(aggregation, type_info):
    operator = aggregation_operator(aggregation, 1, select_key(0, type_info), type_info)
    with OperatorHarness(operator) as harness:
        harness.process(RECORDS[:3], type_info=type_info)
        snapshot = harness.snapshot()
        harness.process([("a", 1000, ""), ("b", -1000, "")], type_info=type_info)
    with OperatorHarness(operator, restore_from=[snapshot]) as harness:
        harness.process(RECORDS[3:], type_info=type_info)
        assert harness.output == RESULTS[aggregation][3:]


def test_timestamps_stay_with_their_records():
    operator = aggregation_operator(Aggregation.SUM, 1, select_key(0, SALES), SALES)
    batch = as_batch(RECORDS, arrow_format(SALES))
    batch.timestamps = np.arange(6)
    with OperatorHarness(operator) as harness:
        harness.process_batch(batch)
        assert harness.batches[0].timestamps.tolist() == [0, 1, 2, 3, 4, 5]


def test_a_dictionary_encoded_key_stays_encoded():
    typed = Types.TUPLE([Types.STRING(), Types.LONG()])
    format = arrow_format(typed)
    columns = pa.RecordBatch.from_arrays(
        [pa.array(["a", "b", "a"]).dictionary_encode(), pa.array([1, 2, 3])], names=["f0", "f1"]
    )
    operator = aggregation_operator(Aggregation.SUM, 1, select_key(0, typed), typed)
    with OperatorHarness(operator) as harness:
        harness.process_batch(Batch.of_columns(columns, format))
        assert harness.batches[0].columns.column(0).type == columns.column(0).type
        assert harness.output == [("a", 1), ("b", 2), ("a", 4)]
