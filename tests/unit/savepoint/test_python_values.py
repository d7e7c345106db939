import pyarrow as pa

from tidegate.savepoint.python_values import Reading
from tidegate.types.row import Row
from tidegate.types.typeinfo import Types

POINT = Types.ROW_NAMED(["x", "note"], [Types.LONG(), Types.STRING()])


def test_a_struct_that_is_null_is_no_row_of_nulls():
    kind = pa.struct([("x", pa.int64()), ("note", pa.string())])
    column = pa.array([None, {"x": 1, "note": None}], kind)
    for reading in (Reading(), Reading(type_info=POINT)):
        assert reading.values(column) == [None, Row(x=1, note=None)]
