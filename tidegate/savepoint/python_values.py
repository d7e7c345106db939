"""Converts columns of a DataFrame to keys and values of a state, as a job would have them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from tidegate.core.errors import TypeMismatch
from tidegate.types.arrow import VALUE_COLUMN, arrow_format
from tidegate.types.infer import type_info_of_arrow
from tidegate.types.nested import with_none
from tidegate.types.record_shapes import shape_of_document
from tidegate.types.shapes import Single
from tidegate.types.typeinfo import CompositeTypeInfo, TypeInformation, Types


@dataclass(frozen=True, slots=True)
class Reading:
    """How the values of a column are read. Sent to Spark's tasks."""

    shape: Any = None
    """The document of the shape of the state in a savepoint."""
    type_info: TypeInformation | None = None
    """The declared type, used if there is no shape."""
    is_key: bool = False

    def values(self, column: pa.Array[Any]) -> list[Any]:
        """The Python values of a column.

        Raises:
            TypeMismatch: the column has another type than declared.
            MissingField: it lacks a field.
        """
        if self.shape is not None:
            shape = shape_of_document(self.shape)
            try:
                return shape.decode(column.cast(shape.arrow_type))
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as failure:
                found = f"<a column of {column.type}>"
                raise TypeMismatch(str(shape.arrow_type), found, str(failure)) from None
        kind = column.type
        if isinstance(kind, pa.TimestampType) and kind.tz is not None and self.type_info is None:
            return Single("datetime in UTC").decode(column.cast(pa.timestamp("us", "UTC")))
        type_info = self.type_info or self._natural(kind)
        format = arrow_format(type_info)
        if format is None:
            return column.to_pylist()
        if isinstance(type_info, CompositeTypeInfo):
            if not isinstance(column, pa.StructArray):
                raise TypeMismatch(str(type_info), f"<a column of {kind}>", "use a struct")
            rows = pa.RecordBatch.from_arrays(column.flatten(), schema=pa.schema(list(kind)))
        else:
            rows = pa.RecordBatch.from_arrays([column], names=[VALUE_COLUMN])
        return with_none(format.decode(format.conform(rows)), column)

    def _natural(self, kind: Any) -> TypeInformation:
        if self.is_key and pa.types.is_struct(kind):
            return Types.TUPLE([type_info_of_arrow(field.type) for field in kind])
        return type_info_of_arrow(kind)

    def check(self, kind: pa.DataType) -> None:
        """Raise what `values` would raise for a column of this type."""
        self.values(pa.array([], kind))
