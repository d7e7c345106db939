"""Answers: documents, and messages for refusals."""

from __future__ import annotations

import json
import logging
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from tidegate.core.redaction import redacted_document
from tidegate.web.documents.common import RefusalDocument
from tidegate.web.forms import as_document
from tidegate.web.requests import Refusal

_log = logging.getLogger("tidegate.rest")


class Document(Response):
    """A form as JSON, without secrets; any text in it can be encoded."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        return json.dumps(redacted_document(as_document(content)), separators=(",", ":")).encode()


def refused(refusal: Refusal) -> Response:
    answer = RefusalDocument(errors=[refusal.sentence])
    return Document(answer, status_code=refusal.status, headers=refusal.headers)


async def on_refusal(request: Request, error: Exception) -> Response:
    assert isinstance(error, Refusal)
    return refused(error)


async def on_http_error(request: Request, error: Exception) -> Response:
    """Answer for a path or method that does not exist."""
    assert isinstance(error, HTTPException)
    headers = dict(error.headers or {})
    if error.status_code == 405:
        allowed = headers.get("Allow", "")
        sentence = f"{request.method} is not allowed here, only {allowed}"
    else:
        sentence = f"there is no {request.url.path}; see /openapi.json"
    return refused(Refusal(error.status_code, sentence, headers))


async def on_fault(request: Request, error: Exception) -> Response:
    _log.error("%s %s failed", request.method, request.url.path, exc_info=error)
    sentence = f"internal error, please report it: {type(error).__name__}: {error}"
    return refused(Refusal(500, sentence))
