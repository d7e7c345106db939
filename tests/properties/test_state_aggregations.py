"""Aggregations on columns equal those of a loop over the records."""

import datetime as dt
import math

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.effort import examples
from tests.properties.strategies import in_dictionaries
from tidegate.core.errors import TypeMismatch
from tidegate.core.modes import StateBackendType
from tidegate.operators.aggregations.by_record import RecordAggregation, RecordCount
from tidegate.operators.aggregations.choice import aggregation_operator, aggregation_output_type
from tidegate.operators.aggregations.columnar import ColumnarAggregation
from tidegate.operators.aggregations.kinds import Aggregation
from tidegate.state.keys.selection import KeySelection, select_key
from tidegate.state.rocksdb.columnar import RocksDBColumnarState
from tidegate.stream.batch import Batch
from tidegate.testing.harness import OperatorHarness, as_batch
from tidegate.types.arrow import arrow_format
from tidegate.types.typeinfo import ArrowTypeInfo, Types

USUAL = examples(25)
BACKENDS = st.sampled_from([{"state.backend.type": backend} for backend in StateBackendType] + [{}])
SMALL = st.integers(-3, 3)
TEXT = st.sampled_from(
    ["", "a", "b", "key", "exactly 12 b", "exactly 13 by", "a much longer key " * 3]
)
FLOATS = st.sampled_from([0.0, -0.0, 1.5, -1.5, 1e16, 0.1, math.inf, -math.inf, math.nan])
SUMMABLE = {
    Types.LONG(): st.integers(-(2**40), 2**40),
    Types.INT(): st.integers(-1000, 1000),
    Types.SHORT(): st.integers(-10, 10),
    Types.DOUBLE(): FLOATS | st.floats(-1e6, 1e6),
    Types.FLOAT(): st.sampled_from([0.5, 0.1, -3.25, 1e10]),
    ArrowTypeInfo(pa.uint32()): st.integers(0, 1000),
}
ORDERED = {
    **SUMMABLE,
    Types.LONG(): st.integers(-(2**63), 2**63 - 1) | SMALL,
    ArrowTypeInfo(pa.uint64()): st.integers(0, 2**64 - 1) | st.integers(0, 3),
    Types.STRING(): TEXT,
    Types.BIG_INT(): SMALL | st.integers(-(10**70), 10**70),
    Types.BOOLEAN(): st.booleans(),
    Types.SQL_DATE(): st.dates(dt.date(2020, 1, 1), dt.date(2020, 1, 4)),
    Types.SQL_TIMESTAMP(): st.datetimes(),
    Types.PRIMITIVE_ARRAY(Types.BYTE()): st.binary(max_size=2),
}
KEYS = {
    Types.STRING(): TEXT,
    Types.LONG(): SMALL,
    Types.BYTE(): SMALL,
    Types.DOUBLE(): FLOATS,
    Types.BOOLEAN(): st.booleans(),
    Types.SQL_DATE(): st.dates(dt.date(2020, 1, 1), dt.date(2020, 1, 4)),
    Types.PRIMITIVE_ARRAY(Types.BYTE()): TEXT.map(str.encode),
    ArrowTypeInfo(pa.decimal128(6, 2)): st.decimals(-1, 1, places=2),
}


def pick(choices):
    return st.sampled_from(list(choices))


@st.composite
def programs(draw):
    """(aggregation, key fields, aggregated field, type, batches of records)."""
    aggregation = draw(st.sampled_from(Aggregation))
    key_types = draw(st.lists(pick(KEYS), min_size=1, max_size=3))
    values = SUMMABLE if aggregation is Aggregation.SUM else ORDERED
    value_type = draw(pick(values))
    other_types = draw(st.lists(pick(ORDERED), max_size=2))
    record = st.tuples(
        *(st.none() | KEYS[kind] for kind in key_types),
        st.none() | values[value_type],
        *(st.none() | ORDERED[kind] for kind in other_types),
    )
    batches = draw(st.lists(st.lists(record, max_size=30), max_size=4))
    if draw(st.booleans()):
        batches = [batch * 40 for batch in batches]
    type_info = Types.TUPLE([*key_types, value_type, *other_types])
    fields = tuple(range(len(key_types)))
    key = fields[0] if len(fields) == 1 and draw(st.booleans()) else fields
    return aggregation, key, len(fields), type_info, batches


def by_record(aggregation, key, field, type_info):
    """The operator that loops, on the same typed records."""
    selection = KeySelection(select_key(key, type_info).selector)
    output = aggregation_output_type(aggregation, select_key(key, type_info), type_info)
    if aggregation is Aggregation.COUNT:
        return RecordCount(field, selection, arrow_format(output))
    return RecordAggregation(aggregation, field, selection, arrow_format(output))


def as_text(records):
    """In a comparable form that distinguishes zeros and keeps NaN."""
    return [repr(record) for record in records]


@USUAL
@given(programs(), st.booleans(), BACKENDS, st.integers(0, 3))
def test_columns_give_what_a_loop_over_records_gives(program, encoded, backend, kept):
    aggregation, key, field, type_info, batches = program
    operator = aggregation_operator(aggregation, field, select_key(key, type_info), type_info)
    assert isinstance(operator, ColumnarAggregation)
    with (
        OperatorHarness(operator, settings=backend) as columnar,
        OperatorHarness(by_record(aggregation, key, field, type_info)) as looping,
    ):
        for records in batches:
            batch = as_batch(records, arrow_format(type_info))
            looping.process_batch(batch)
            if encoded:
                batch = Batch.of_columns(in_dictionaries(batch.columns), batch.format)
            columnar.process_batch(batch)
            keep_in_memory(columnar, kept)
        for one, other in zip(columnar.batches, looping.batches, strict=True):
            arrived = Batch.of_columns(other.columns, other.format)
            assert as_text(one.records) == as_text(arrived.records)


def test_a_float_sum_beyond_32_bits_fails_after_the_results_before_it():
    kind = Types.TUPLE([Types.LONG(), Types.FLOAT()])
    batch = as_batch([(1, 3e38), (2, 1.0), (1, 3e38)], arrow_format(kind))
    operator = aggregation_operator(Aggregation.SUM, 1, select_key(0, kind), kind)
    with OperatorHarness(operator) as columnar:
        with pytest.raises(TypeMismatch, match=r"exceeds the range of float: declare .*DOUBLE"):
            columnar.process_batch(batch)
        assert [key for key, _ in columnar.output] == [1, 2]
    with OperatorHarness(by_record(Aggregation.SUM, 0, 1, kind)) as looping:
        looping.process_batch(batch)
        with pytest.raises(TypeMismatch, match=r"outside the range of Types\.FLOAT"):
            _ = looping.batches[0].columns


def keep_in_memory(harness, keys):
    """Keep this many keys; the others must be loaded from the database."""
    if isinstance(harness.operator.state, RocksDBColumnarState):
        harness.operator.state.shrink(keys)


@USUAL
@given(programs(), st.integers(1, 4), st.integers(1, 4), BACKENDS, BACKENDS, st.data())
def test_a_rescaled_aggregation_continues_where_it_was(program, old, new, first, second, data):
    aggregation, key, field, type_info, batches = program
    format = arrow_format(type_info)
    selection = select_key(key, type_info)
    operator = aggregation_operator(aggregation, field, selection, type_info)
    cut = data.draw(st.integers(0, len(batches)))

    def subtasks(count, backend, snapshots=()):
        return [
            OperatorHarness(
                operator,
                parallelism=count,
                subtask=i,
                max_parallelism=8,
                settings=backend,
                restore_from=snapshots,
            )
            for i in range(count)
        ]

    def process(harnesses, records):
        owners = {group: i for i, h in enumerate(harnesses) for group in h.context.key_groups}
        batch = as_batch(records, format)
        targets = [owners[int(h) % 8] for h in selection.hashes(batch)]
        results = [None] * len(records)
        for i, harness in enumerate(harnesses):
            places = [place for place, target in enumerate(targets) if target == i]
            harness.process_batch(as_batch([records[place] for place in places], format))
            keep_in_memory(harness, 1)
            for place, result in zip(places, harness.take_output(), strict=True):
                results[place] = result
        return as_text(results)

    whole = subtasks(1, {})
    expected = [process(whole, records) for records in batches]
    before = subtasks(old, first)
    found = [process(before, records) for records in batches[:cut]]
    after = subtasks(new, second, [harness.snapshot() for harness in before])
    found += [process(after, records) for records in batches[cut:]]
    assert found == expected
    for harness in (*whole, *before, *after):
        harness.close()
