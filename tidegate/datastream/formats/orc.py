"""Rows as ORC files."""

from collections.abc import Mapping
from typing import Any

from tidegate.connectors.files.formats import require_columns
from tidegate.connectors.files.orc import OrcEncoding
from tidegate.types.infer import as_type_info


class OrcBulkWriters:
    """Writes rows as ORC files: PyFlink's name for `OrcEncoding`."""

    @staticmethod
    def for_row_type(
        row_type: Any, writer_properties: Mapping[str, Any] | None = None, hadoop_config: Any = None
    ) -> OrcEncoding:
        """For `FileSink.for_bulk_format`.

        Args:
            row_type: `Types.ROW_NAMED(...)`, a dataclass, an Arrow or a Spark schema.
            writer_properties: options of `pyarrow.orc.ORCWriter`, such as `compression`.
            hadoop_config: unused.
        """
        return OrcEncoding(require_columns(as_type_info(row_type), "ORC"), writer_properties)


__all__ = ["OrcBulkWriters"]
