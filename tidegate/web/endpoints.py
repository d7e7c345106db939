"""The paths of the REST API: each is declared at the method that answers it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeVar

from starlette.responses import Response

from tidegate.web.documents import schemas
from tidegate.web.documents.schema_forms import Schema
from tidegate.web.shared_answers import Handler

OF_JOB: Final = (400, 404)
_OF_ORDER: Final = (400, 403, 404, 409, 413, 429)
_DECLARED: Final = "tidegate_endpoint"

_Method = TypeVar("_Method", bound=Callable[..., Awaitable[Response]])


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """One method of one path."""

    path: str
    answer: Schema
    method: str = "GET"
    status: int = 200
    body: Schema | None = None
    query: dict[str, Schema] = field(default_factory=dict)
    refusals: tuple[int, ...] = OF_JOB
    content_type: str = "application/json"
    summary: str
    handler: Handler


def endpoint(path: str, answer: Schema, **more: Any) -> Callable[[_Method], _Method]:
    """Declare what a method answers; its docstring is the summary.

    Args:
        path: below the address of the server.
        answer: what it looks like.
        more: other fields of `Endpoint`.
    """

    def declare(method: _Method) -> _Method:
        summary = method.__doc__ or ""
        found = Endpoint(path=path, answer=answer, summary=summary, handler=method, **more)
        setattr(method, _DECLARED, found)
        return method

    return declare


def order(
    path: str, body: Schema | None = None, *, method: str = "POST", **more: Any
) -> Callable[[_Method], _Method]:
    """Declare a method that begins what takes longer than a request, to be looked up by an id."""
    more = {"refusals": _OF_ORDER, **more}
    return endpoint(path, schemas.TRIGGERED, method=method, status=202, body=body, **more)


def endpoints(*apis: object) -> list[Endpoint]:
    """All that are declared, in the order in which a reader wants to know them."""
    return [
        replace(getattr(function, _DECLARED), handler=getattr(api, name))
        for api in apis
        for name, function in vars(type(api)).items()
        if hasattr(function, _DECLARED)
    ]
