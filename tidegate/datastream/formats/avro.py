"""Avro: PyFlink's names, which only wrap Java classes."""

from tidegate.common.java_only import java_only

_ADVICE = "Decode records with an Avro library in a map(), or use Parquet."

AvroBulkWriters = java_only("AvroBulkWriters", _ADVICE)
AvroInputFormat = java_only("AvroInputFormat", _ADVICE)
AvroRowDeserializationSchema = java_only("AvroRowDeserializationSchema", _ADVICE)
AvroRowSerializationSchema = java_only("AvroRowSerializationSchema", _ADVICE)
AvroSchema = java_only("AvroSchema", _ADVICE)
GenericRecordAvroTypeInfo = java_only("GenericRecordAvroTypeInfo", _ADVICE)

__all__ = [
    "AvroBulkWriters",
    "AvroInputFormat",
    "AvroRowDeserializationSchema",
    "AvroRowSerializationSchema",
    "AvroSchema",
    "GenericRecordAvroTypeInfo",
]
