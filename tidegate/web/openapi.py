"""The OpenAPI document, generated from the endpoints."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Annotated

from tidegate import __version__
from tidegate.web.documents.common import RefusalDocument
from tidegate.web.endpoints import Declaration, Endpoint
from tidegate.web.forms import (
    Between,
    Form,
    Id,
    Schema,
    fields_of,
    schema_of,
    schema_of_body,
    without_none,
)

_SENTENCES = {
    400: "An id, a parameter or the body is invalid.",
    401: "The token is missing or wrong.",
    403: "The path, the host or the origin is not allowed.",
    404: "It does not exist.",
    409: "The state of the job does not allow it.",
    413: "The body is too long.",
    429: "Too many operations are in progress.",
}
_EVERYWHERE = (401, 403)
_PARAMETERS = {
    "jobid": Annotated[Id, "The id of a job."],
    "vertexid": Annotated[Id, "The id of a vertex."],
    "triggerid": Annotated[Id, "The request-id that answered the order."],
    "rescaleuuid": Annotated[Id, "The rescaleUuid of a change of the parallelism."],
    "checkpointid": Annotated[int, Between(0, 10**17), "Its number."],
    "subtaskindex": Annotated[int, Between(0, 1 << 15), "Its number."],
    "edgeid": Annotated[int, Between(0, 10**9), "Its number."],
    "filename": Annotated[str, "The name of a log file."],
    "taskmanagerid": Annotated[str, "The id of a job, -slot-, and a number."],
}


def openapi(endpoints: Iterable[Endpoint]) -> Schema:
    paths: dict[str, Schema] = {}
    for endpoint in endpoints:
        said = endpoint.said
        paths.setdefault(said.path, {})[said.method.lower()] = _operation(endpoint)
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


def _operation(endpoint: Endpoint) -> Schema:
    said = endpoint.said
    found: Schema = {
        "summary": endpoint.summary,
        "operationId": _name(said),
        "parameters": [*_in_path(said.path), *_in_query(endpoint.query)],
        "responses": {
            str(said.status): {
                "description": "As requested.",
                "content": {said.content_type: {"schema": _answer(endpoint)}},
            },
            **{
                str(status): {
                    "description": _SENTENCES[status],
                    "content": {"application/json": {"schema": schema_of(RefusalDocument)}},
                }
                for status in sorted({*said.refusals, *_EVERYWHERE})
            },
        },
    }
    if endpoint.body is not None:
        schema = schema_of_body(endpoint.body)
        found["requestBody"] = {
            "required": bool(schema.get("required")),
            "content": {"application/json": {"schema": schema}},
        }
    return found


def _answer(endpoint: Endpoint) -> Schema:
    is_text = endpoint.said.content_type.startswith("text/")
    return schema_of(str if is_text else endpoint.answer)


def _in_path(path: str) -> list[Schema]:
    return [
        {"name": name, "in": "path", "required": True, "schema": schema_of(kind)}
        for name in re.findall(r"{(\w+)}", path)
        for kind in [_PARAMETERS[name]]
    ]


def _in_query(form: type[Form] | None) -> list[Schema]:
    if form is None:
        return []
    required = schema_of_body(form)["required"]
    return [
        {
            "name": name,
            "in": "query",
            "required": name in required,
            "schema": schema_of(without_none(kind)),
        }
        for _, name, kind in fields_of(form)
    ]


def _name(said: Declaration) -> str:
    words = re.sub(r"[^a-z]+", " ", said.path).split()
    return "-".join([said.method.lower(), *words])
