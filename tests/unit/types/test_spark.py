import datetime
import subprocess
import sys
from decimal import Decimal

import pyarrow as pa
import pytest
from pyspark.sql import types as spark

from tidegate.core.errors import TypeMismatch
from tidegate.types.arrow import arrow_format
from tidegate.types.infer import as_type_info
from tidegate.types.instant import Instant
from tidegate.types.row import Row
from tidegate.types.spark import to_spark_batch, to_spark_schema
from tidegate.types.spark_versions import TIME_TYPE
from tidegate.types.typeinfo import ArrowTypeInfo, ExternalTypeInfo, Types


@pytest.mark.parametrize(
    "spark_type",
    [
        spark.BooleanType(),
        spark.ByteType(),
        spark.ShortType(),
        spark.IntegerType(),
        spark.LongType(),
        spark.FloatType(),
        spark.DoubleType(),
        spark.StringType(),
        spark.BinaryType(),
        spark.DateType(),
        *([] if TIME_TYPE is None else [TIME_TYPE()]),
        spark.TimestampType(),
        spark.TimestampNTZType(),
        spark.DayTimeIntervalType(),
        spark.DecimalType(10, 2),
        spark.NullType(),
        spark.ArrayType(spark.LongType()),
        spark.MapType(spark.StringType(), spark.DoubleType()),
        spark.StructType([spark.StructField("inner", spark.StringType())]),
    ],
    ids=lambda spark_type: spark_type.simpleString(),
)
def test_a_spark_column_keeps_its_type_on_the_way_there_and_back(spark_type):
    schema = spark.StructType([spark.StructField("column", spark_type)])
    row = as_type_info(schema)
    assert to_spark_schema(row) == schema
    assert arrow_format(row) is not None


def test_a_spark_schema_means_rows():
    schema = spark.StructType().add("a", "string").add("b", "long")
    assert as_type_info(schema).get_field_names() == ["a", "b"]
    assert as_type_info(schema) == Types.ROW([Types.STRING(), Types.LONG()])


def test_a_spark_type_may_be_given_as_its_class():
    assert as_type_info(spark.LongType) == Types.LONG()


def test_strings_of_limited_length_are_strings():
    assert as_type_info(spark.VarcharType(5)) == as_type_info(spark.CharType(5)) == Types.STRING()


def test_a_spark_type_without_counterpart_is_named():
    with pytest.raises(TypeError, match="type variant cannot be a field of a stream: cast it"):
        as_type_info(spark.VariantType())


def test_single_values_become_a_column_called_value():
    assert to_spark_schema(Types.LONG()) == spark.StructType().add("value", "long")


def test_tuples_become_columns_by_position():
    schema = to_spark_schema(Types.TUPLE([Types.STRING(), Types.SQL_TIMESTAMP()]))
    assert schema.simpleString() == "struct<f0:string,f1:timestamp_ntz>"


def test_types_beyond_spark_become_the_nearest():
    types = [Types.BIG_INT(), Types.BIG_DEC(), Types.INSTANT(), ArrowTypeInfo(pa.uint64())]
    assert to_spark_schema(Types.ROW(types)).simpleString() == (
        "struct<f0:decimal(38,0),f1:decimal(38,18),f2:timestamp,f3:decimal(20,0)>"
    )


def test_pickled_records_have_no_spark_schema():
    with pytest.raises(TypeError, match="declare the type of the stream"):
        to_spark_schema(Types.PICKLED_BYTE_ARRAY())


def test_an_arrow_type_that_spark_lacks_is_named():
    with pytest.raises(TypeError, match=r"Spark has no type for Arrow's month_day_nano_interval"):
        to_spark_schema(ArrowTypeInfo(pa.month_day_nano_interval()))


def test_a_batch_is_brought_into_the_types_of_its_spark_schema():
    inner = Types.LIST(Types.MAP(Types.STRING(), Types.TUPLE([Types.BIG_DEC()])))
    format = arrow_format(
        ExternalTypeInfo(Types.ROW([Types.BIG_INT(), Types.INSTANT(), inner, Types.STRING()]))
    )
    records = [
        Row(7, Instant(1, 999_999_999), [{"a": (Decimal("1.5"),), "b": None}, None], "x"),
        Row(None, None, None, None),
    ]
    second = datetime.datetime(1970, 1, 1, 0, 0, 1, 999_999, datetime.UTC)
    assert to_spark_batch(format, format.encode(records)).to_pylist() == [
        {
            "f0": Decimal(7),
            "f1": second,
            "f2": [[("a", {"f0": Decimal("1.5")}), ("b", None)], None],
            "f3": "x",
        },
        {"f0": None, "f1": None, "f2": None, "f3": None},
    ]


def test_a_batch_in_spark_types_already_keeps_its_columns():
    format = arrow_format(Types.TUPLE([Types.STRING(), Types.LONG()]))
    batch = format.encode([("a", 1)])
    assert to_spark_batch(format, batch) == batch


def test_a_slice_of_a_batch_is_converted_alone():
    format = arrow_format(Types.LIST(Types.BIG_DEC()))
    batch = format.encode([[Decimal(1)], [Decimal(2), None], [Decimal(3)]])
    assert to_spark_batch(format, batch[1:2]).to_pylist() == [{"value": [Decimal(2), None]}]


@pytest.mark.parametrize(
    ("type_info", "values"),
    [
        (Types.LIST(Types.LONG()), [[1], None, [2, None]]),
        (Types.MAP(Types.STRING(), Types.LONG()), [[("a", 1)], None, [("b", 2)]]),
    ],
    ids=str,
)
def test_a_slice_with_null_is_converted_too(type_info, values):
    format = arrow_format(type_info)
    records = [dict(v) if v and isinstance(v[0], tuple) else v for v in values]
    batch = to_spark_batch(format, format.encode(records)[1:])
    assert batch.column(0).to_pylist() == values[1:]


def test_an_instant_beyond_the_times_of_spark_is_refused():
    format = arrow_format(Types.INSTANT())
    with pytest.raises(TypeMismatch, match="overflow"):
        to_spark_batch(format, format.encode([Instant(10**13, 0)]))


@pytest.mark.parametrize(
    ("type_info", "number"),
    [(Types.BIG_INT(), 10**40), (Types.BIG_DEC(), Decimal("1e-30"))],
    ids=["BIG_INT", "BIG_DEC"],
)
def test_a_number_with_more_digits_than_a_spark_decimal_is_refused(type_info, number):
    format = arrow_format(type_info)
    with pytest.raises(TypeMismatch, match="does not fit the declared type Big"):
        to_spark_batch(format, format.encode([number]))


def test_pyspark_is_not_imported_for_other_types():
    program = (
        "import sys; from tidegate.types.infer import as_type_info; as_type_info(int); "
        "sys.exit('pyspark' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
