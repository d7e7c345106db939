import datetime as dt

import pyarrow as pa

from tidegate.state.columnar.column_rows import RowCodec


def test_rows_become_the_columns_they_were():
    columns = {
        "number": pa.array([1, -2, 3], pa.int64()),
        "flag": pa.array([True, False, True]),
        "text": pa.array(["a", None, "c"]),
        "nanos": pa.array([1, None, 10**18 + 1], pa.timestamp("ns", tz="UTC")),
        "date": pa.array([dt.date(2020, 1, 1), None, None], pa.date32()),
        "nested": pa.array([[1], [], None], pa.list_(pa.int32())),
    }
    schema = pa.schema(
        [
            pa.field(name, column.type, nullable=name not in ("number", "flag"))
            for name, column in columns.items()
        ]
    )
    codec = RowCodec(schema)
    rows = codec.encode(list(columns.values()))
    assert len(rows) == 3
    for found, expected in zip(codec.decode(rows), columns.values(), strict=True):
        assert found.equals(expected)


def test_numbers_alone_take_no_more_than_their_width():
    codec = RowCodec(pa.schema([pa.field("n", pa.int64(), nullable=False)]))
    assert [len(row) for row in codec.encode([pa.array([1, 2])])] == [8, 8]
