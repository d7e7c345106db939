"""The endpoints of the REST API, each declared at its method.

The annotations of the method define the rest: its return type is the answer, `body` and `query` are
the input.
"""

from __future__ import annotations

import typing
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from starlette.requests import Request
from starlette.responses import Response

from tidegate.core.rest_settings import RestSettings
from tidegate.web.answers import Document
from tidegate.web.forms import Form, NotOfForm, parsed_query
from tidegate.web.requests import KNOWN, Refusal, body_of
from tidegate.web.serving.guard import unknown
from tidegate.web.serving.shared_answers import Handler

OF_JOB: Final = (400, 404)
_OF_ORDER: Final = (400, 403, 404, 409, 413, 429)
_DECLARED: Final = "tidegate_endpoint"

_Method = TypeVar("_Method", bound=Callable[..., Awaitable[Any]])


@dataclass(frozen=True, slots=True, kw_only=True)
class Declaration:
    """The declaration of an endpoint."""

    path: str
    method: str = "GET"
    status: int = 200
    refusals: tuple[int, ...] = OF_JOB
    content_type: str = "application/json"
    is_private: bool = False
    """Whether it shows what requires a token: records, state, logs, stacks."""
    is_shared: bool = True
    """Whether concurrent requests share one answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """One method of one path, and its handler."""

    said: Declaration
    summary: str
    answer: Any
    body: type[Form] | None
    query: type[Form] | None
    act: Callable[..., Awaitable[Any]]

    def handler(self, settings: RestSettings) -> Handler:
        """A handler that parses the input and sends the result."""

        async def handle(request: Request) -> Response:
            if self.said.is_private and not request.scope[KNOWN]:
                raise unknown(settings)
            given: dict[str, Form] = {}
            if self.body is not None:
                given["body"] = await body_of(request, self.body)
            if self.query is not None:
                try:
                    given["query"] = parsed_query(self.query, request.query_params)
                except NotOfForm as error:
                    raise Refusal(400, str(error)) from None
            answer = await self.act(request, **given)
            if isinstance(answer, Response):
                return answer
            return Document(answer, status_code=self.said.status)

        return handle


def endpoint(path: str, **more: Any) -> Callable[[_Method], _Method]:
    """Declare an endpoint; the docstring of the method is its summary.

    Args:
        path: below the address of the server.
        more: other fields of `Declaration`.
    """

    def declare(method: _Method) -> _Method:
        setattr(method, _DECLARED, Declaration(path=path, **more))
        return method

    return declare


def order(path: str, *, method: str = "POST", **more: Any) -> Callable[[_Method], _Method]:
    """Declare an endpoint that changes something, or starts what takes longer than a request."""
    more = {"refusals": _OF_ORDER, "status": 202, "is_shared": False, **more}
    return endpoint(path, method=method, **more)


def endpoints(*apis: object) -> list[Endpoint]:
    """All declared endpoints, in reading order."""
    return [
        _endpoint(getattr(function, _DECLARED), function, getattr(api, name))
        for api in apis
        for name, function in vars(type(api)).items()
        if hasattr(function, _DECLARED)
    ]


def _endpoint(said: Declaration, function: Callable[..., Any], act: Any) -> Endpoint:
    kinds = typing.get_type_hints(function, include_extras=True)
    return Endpoint(
        said=said,
        summary=function.__doc__ or "",
        answer=kinds["return"],
        body=kinds.get("body"),
        query=kinds.get("query"),
        act=act,
    )
