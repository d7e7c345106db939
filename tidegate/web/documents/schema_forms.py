"""What JSON schemas are made of."""

from __future__ import annotations

from typing import Any

Schema = dict[str, Any]

INTEGER: Schema = {"type": "integer"}
NUMBER: Schema = {"type": "number"}
TEXT: Schema = {"type": "string"}
BOOLEAN: Schema = {"type": "boolean"}
ID: Schema = {"type": "string", "pattern": "^[0-9a-f]{32}$"}


def object_of(properties: Schema, optional: tuple[str, ...] = ()) -> Schema:
    required = [name for name in properties if name not in optional]
    return {"type": "object", "properties": properties, "required": required}


def fields(schema: Schema, *names: str) -> Schema:
    """Properties of an object that look alike."""
    return dict.fromkeys(names, schema)


def array_of(items: Schema) -> Schema:
    return {"type": "array", "items": items}


def mapping_of(values: Schema) -> Schema:
    return {"type": "object", "additionalProperties": values}


def or_null(schema: Schema) -> Schema:
    return {"anyOf": [schema, {"type": "null"}]}


def described(sentence: str, schema: Schema) -> Schema:
    return {**schema, "description": sentence}


def choice(values: tuple[str, ...]) -> Schema:
    return {"type": "string", "enum": list(values)}


def request_body(properties: Schema, required: tuple[str, ...] = ()) -> Schema:
    """All fields but those required may be absent or null."""
    for name, schema in properties.items():
        if name not in required:
            schema["type"] = [schema["type"], "null"]
            if "enum" in schema:
                schema["enum"] = [*schema["enum"], None]
    return {
        "type": "object",
        "properties": properties,
        "required": list(required),
        "additionalProperties": False,
    }
