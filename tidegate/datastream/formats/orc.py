"""ORC: PyFlink's names, which only wrap Java classes."""

from tidegate.common.java_only import java_only

_ADVICE = "Write Parquet by ParquetEncoding, or a table by sink_to_table()."

OrcBulkWriters = java_only("OrcBulkWriters", _ADVICE)

__all__ = ["OrcBulkWriters"]
