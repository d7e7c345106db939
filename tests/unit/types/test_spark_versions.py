from tidegate.types.spark_versions import _facts_of

DESCRIPTION = """
day|date|null
amount|bigint|null
# Partition Information||
# col_name|data_type|comment
day|date|null
||
# Detailed Table Information||
Type|MANAGED|
Provider|parquet|
Location|file:/somewhere/sales|
Num Buckets|4|
"""


def test_facts_are_read_from_the_description_of_a_spark_that_has_no_json():
    rows = [tuple(line.split("|")[:2]) for line in DESCRIPTION.strip().splitlines()]
    assert _facts_of(rows) == {
        "type": "MANAGED",
        "provider": "parquet",
        "location": "file:/somewhere/sales",
        "num_buckets": "4",
        "partition_columns": ["day"],
    }


def test_a_table_without_partitions_has_no_columns_of_them():
    assert _facts_of([("a", "int"), ("", "")])["partition_columns"] == []
