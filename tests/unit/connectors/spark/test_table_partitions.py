from datetime import date

import pyarrow as pa
import pytest
from pyarrow import parquet as pq

from tidegate.connectors.spark.table_partitions import PartitionAssigner, check_directory, values_of
from tidegate.core.errors import TableMismatch
from tidegate.stream.batch import Batch
from tidegate.types.arrow import arrow_format
from tidegate.types.row import Row
from tidegate.types.typeinfo import Types

SALE = Types.ROW_NAMED(
    ["country", "day", "vip", "amount"],
    [Types.STRING(), Types.SQL_DATE(), Types.BOOLEAN(), Types.LONG()],
)
MONDAY = date(2024, 2, 26)


def split(*rows, columns):
    batch = Batch.of_records([Row(*row) for row in rows], arrow_format(SALE))
    return {
        name: [tuple(row) for row in part.records]
        for name, part in PartitionAssigner(columns).split(batch, 0.0)
    }


def test_rows_go_into_the_directory_of_their_values_in_their_order():
    one, two, three = ("de", MONDAY, True, 1), ("it", MONDAY, False, 2), ("de", MONDAY, True, 3)
    assert split(one, two, three, columns=["country", "day", "vip"]) == {
        "country=de/day=2024-02-26/vip=true": [one, three],
        "country=it/day=2024-02-26/vip=false": [two],
    }


def test_rows_of_one_partition_stay_one_batch():
    rows = [("de", MONDAY, True, n) for n in range(3)]
    assert split(*rows, columns=["amount"]).keys() == {"amount=0", "amount=1", "amount=2"}
    assert split(*rows, columns=["country"]) == {"country=de": rows}


@pytest.mark.parametrize("text", ["a/b", "x=y", "50%", "ü [1]", "it's", "a:b*c?", "tab\there"])
def test_a_directory_tells_the_value_whatever_it_is(text):
    (name,) = split((text, MONDAY, True, 1), columns=["country"])
    assert name.count("/") == 0
    assert values_of(name) == {"country": text}


@pytest.mark.parametrize("value", [None, ""])
def test_no_value_has_the_directory_that_spark_knows(value):
    (name,) = split((value, None, None, 1), columns=["country", "day"])
    assert name == "country=__HIVE_DEFAULT_PARTITION__/day=__HIVE_DEFAULT_PARTITION__"
    assert values_of(name) == {"country": None, "day": None}


def test_files_of_other_columns_are_refused_with_both_lists(tmp_path):
    wanted = pa.schema([("n", pa.int64()), ("text", pa.string())])
    check_directory(str(tmp_path / "missing"), wanted, [])
    check_directory(str(tmp_path), wanted, [])
    (tmp_path / "day=1").mkdir()
    pq.write_table(pa.table({"text": ["a"], "n": [1]}), tmp_path / "day=1" / "a.parquet")
    check_directory(str(tmp_path), wanted, ["day"])
    for schema, partitions in [
        (pa.schema([("n", pa.int32()), ("text", pa.string())]), ["day"]),
        (pa.schema([("n", pa.int64())]), ["day"]),
        (wanted, []),
    ]:
        with pytest.raises(TableMismatch, match="columns found: text string, n int64, day"):
            check_directory(str(tmp_path), schema, partitions)
