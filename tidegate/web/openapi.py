"""The OpenAPI document, made from the endpoints themselves."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from tidegate import __version__
from tidegate.web.documents import schema_forms, schemas
from tidegate.web.endpoints import Endpoint

_SENTENCES = {
    400: "An id, a parameter or the body makes no sense.",
    401: "The token is missing or wrong.",
    403: "The path, the host or the origin is not allowed.",
    404: "There is no such thing.",
    409: "The job is not in a state for it.",
    413: "The body is too long.",
    429: "Too many operations are under way.",
}
_EVERYWHERE = (401, 403)
_PARAMETERS = {
    "jobid": (schema_forms.ID, "The id of a job, 32 hexadecimal digits."),
    "vertexid": (schema_forms.ID, "The id of a vertex, 32 hexadecimal digits."),
    "triggerid": (schema_forms.ID, "What the order was answered with as request-id."),
    "checkpointid": ({"type": "integer", "minimum": 0, "maximum": 10**17}, "Its number."),
}


def openapi(endpoints: Iterable[Endpoint]) -> dict[str, Any]:
    paths: dict[str, dict[str, Any]] = {}
    for endpoint in endpoints:
        paths.setdefault(endpoint.path, {})[endpoint.method.lower()] = _operation(endpoint)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Tidegate",
            "version": __version__,
            "description": "Jobs and checkpoints of one driver, under Flink's paths and names.",
        },
        "paths": paths,
        "components": {"securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}},
        "security": [{}, {"token": []}],
    }


def _operation(endpoint: Endpoint) -> dict[str, Any]:
    found: dict[str, Any] = {
        "summary": endpoint.summary,
        "operationId": _name(endpoint),
        "parameters": [*_in_path(endpoint.path), *_in_query(endpoint)],
        "responses": {
            str(endpoint.status): {
                "description": "As asked for.",
                "content": {endpoint.content_type: {"schema": endpoint.answer}},
            },
            **{
                str(status): {
                    "description": _SENTENCES[status],
                    "content": {"application/json": {"schema": schemas.ERRORS}},
                }
                for status in sorted({*endpoint.refusals, *_EVERYWHERE})
            },
        },
    }
    if endpoint.body is not None:
        found["requestBody"] = {
            "required": bool(endpoint.body["required"]),
            "content": {"application/json": {"schema": endpoint.body}},
        }
    return found


def _in_path(path: str) -> list[dict[str, Any]]:
    return [
        {"name": name, "in": "path", "required": True, "schema": schema, "description": text}
        for name in re.findall(r"{(\w+)}", path)
        for schema, text in [_PARAMETERS[name]]
    ]


def _in_query(endpoint: Endpoint) -> list[dict[str, Any]]:
    return [
        {"name": name, "in": "query", "required": False, "schema": schema}
        for name, schema in endpoint.query.items()
    ]


def _name(endpoint: Endpoint) -> str:
    words = re.sub(r"[^a-z]+", " ", endpoint.path).split()
    return "-".join([endpoint.method.lower(), *words])
