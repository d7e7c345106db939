import datetime
from decimal import Decimal

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from tidegate.core.errors import GraphError, UserFunctionError
from tidegate.operators.batches import FrameKind, MapBatchesOperator
from tidegate.stream.batch import Batch
from tidegate.testing.harness import OperatorHarness, as_batch
from tidegate.types.arrow import arrow_format
from tidegate.types.row import Row
from tidegate.types.typeinfo import Types

POINTS = Types.ROW_NAMED(["name", "size"], [Types.STRING(), Types.LONG()])
FORMAT = arrow_format(POINTS)
ROWS = [Row(name="a", size=1), Row(name="b", size=2)]


def run(function, records=ROWS, output_type=None, **settings):
    output = None if output_type is None else arrow_format(output_type)
    with OperatorHarness(MapBatchesOperator(function, FORMAT, output, **settings)) as harness:
        harness.process(records, type_info=POINTS)
    return harness


def double_arrow(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch.set_column(1, "size", pc.multiply(batch["size"], 2))


def double_pandas(frame: pd.DataFrame) -> pd.DataFrame:
    return frame.assign(size=frame["size"] * 2)


def double_polars(frame: pl.DataFrame) -> pl.DataFrame:
    return frame.with_columns(pl.col("size") * 2)


@pytest.mark.parametrize("function", [double_arrow, double_pandas, double_polars])
def test_the_annotation_chooses_the_frame(function):
    assert run(function).output == [Row(name="a", size=2), Row(name="b", size=4)]


def test_a_function_without_annotation_is_given_arrow_or_what_was_asked_for():
    kinds = []

    def look(frame):
        kinds.append(type(frame))
        return frame

    for kind in (None, FrameKind.PANDAS, FrameKind.POLARS):
        operator = MapBatchesOperator(look, FORMAT, kind=kind)
        with OperatorHarness(operator, copy=False) as harness:
            harness.process(ROWS, type_info=POINTS)
        assert harness.output == ROWS
    assert kinds == [pa.RecordBatch, pd.DataFrame, pl.DataFrame]


def test_the_number_of_rows_may_change():
    assert run(lambda batch: batch.slice(1)).output == ROWS[1:]
    assert run(lambda batch: pa.Table.from_batches([batch, batch])).output == ROWS + ROWS
    assert run(lambda batch: None).output == []
    assert run(lambda batch: batch.slice(0, 0)).batches == []


def test_the_output_type_is_what_the_stream_becomes():
    sizes = Types.LONG()
    harness = run(lambda batch: batch.select(["size"]), output_type=sizes)
    assert harness.output == [1, 2]


def test_columns_may_come_in_any_order_and_with_more_besides():
    def turn(frame: pl.DataFrame) -> pl.DataFrame:
        return frame.select("size", "name", extra=pl.lit(1))

    assert run(turn).output == ROWS


def test_changed_columns_without_a_declared_type_tell_to_declare_one():
    with pytest.raises(UserFunctionError, match="declare what it returns with output_type"):
        run(lambda batch: batch.select(["size"]))


@pytest.mark.parametrize(
    "function",
    [
        lambda batch: batch.select(["name"]),
        lambda batch: batch.select(["name"]).to_pandas(),
    ],
)
def test_a_missing_column_is_named(function):
    with pytest.raises(UserFunctionError, match=r"no field 'size'; the fields are: name"):
        run(function, output_type=POINTS)


def test_a_column_of_another_type_is_named():
    def spoil(frame: pl.DataFrame) -> pl.DataFrame:
        return frame.with_columns(size=pl.lit("x"))

    with pytest.raises(UserFunctionError, match="column 'size'"):
        run(spoil, output_type=POINTS)


def test_what_is_no_frame_is_refused():
    with pytest.raises(UserFunctionError, match="takes a RecordBatch"):
        run(lambda batch: batch.to_pylist())


def test_an_exception_of_the_function_is_the_users():
    with pytest.raises(UserFunctionError) as failure:
        run(lambda batch: batch["absent"])
    assert failure.value.cause.startswith("KeyError")
    assert failure.value.args[3] == "<a batch of 2 records>"


def test_a_stream_without_columns_is_refused_at_once():
    with pytest.raises(GraphError, match="declare the stream's type"):
        MapBatchesOperator(lambda batch: batch, None)


def test_missing_integers_survive_pandas():
    def same(frame: pd.DataFrame) -> pd.DataFrame:
        return frame

    rows = [Row(name="a", size=None), Row(name=None, size=3)]
    assert run(same, rows).output == rows


@pytest.mark.parametrize(
    ("type_info", "values"),
    [
        (Types.BOOLEAN(), pd.Series([2])),
        (Types.LONG(), pd.Series([1.5], dtype=object)),
        (Types.LONG(), pd.to_datetime(pd.Series(["2020-01-01"]))),
        (Types.FLOAT(), pd.Series([1e300])),
        (Types.STRING(), pd.Series([b"a"])),
        (Types.SQL_DATE(), pd.to_datetime(pd.Series(["2020-01-01 12:00"]))),
        (Types.SQL_TIMESTAMP(), pd.Series(pd.to_datetime(["2020-01-01"]).tz_localize("Japan"))),
    ],
    ids=str,
)
def test_pandas_does_not_change_values_that_do_not_fit(type_info, values):
    frame = pd.DataFrame({"value": values})
    with pytest.raises(UserFunctionError, match="<the column 'value' of type"):
        run(lambda _: frame, output_type=type_info)


@pytest.mark.parametrize(
    ("type_info", "values"),
    [
        (Types.BIG_INT(), [10**30, None, 1]),
        (Types.MAP(Types.STRING(), Types.LONG()), [{"a": 1}, {}, None]),
        (Types.LIST(Types.MAP(Types.STRING(), Types.LONG())), [[{"a": 1}], None]),
        (Types.LIST(Types.TUPLE([Types.LONG(), Types.STRING()])), [[(1, "a")], [], None]),
        (Types.BIG_DEC(), [Decimal("1.50"), None]),
        (Types.SQL_DATE(), [datetime.date(2020, 1, 1), None]),
        (Types.PRIMITIVE_ARRAY(Types.BYTE()), [b"\xff", None]),
    ],
    ids=str,
)
def test_values_of_every_kind_survive_pandas(type_info, values):
    def same(frame: pd.DataFrame) -> pd.DataFrame:
        return frame

    format = arrow_format(type_info)
    with OperatorHarness(MapBatchesOperator(same, format)) as harness:
        harness.process(values, type_info=type_info)
        assert harness.output == values


def test_timestamps_follow_the_rows():
    def stamped(function):
        columns = as_batch(ROWS, FORMAT).columns
        with OperatorHarness(MapBatchesOperator(function, FORMAT)) as harness:
            batch = Batch(columns=columns, format=FORMAT, timestamps=np.array([5, 9]))
            harness.process_batch(batch)
        return harness.batches[0].timestamps.tolist()

    assert stamped(lambda batch: batch) == [5, 9]
    assert stamped(lambda batch: batch.slice(1)) == [9]
    assert stamped(lambda batch: pa.Table.from_batches([batch, batch])) == [9, 9, 9, 9]
