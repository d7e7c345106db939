"""The REST API as an ASGI application."""

from __future__ import annotations

import re

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from tidegate.core.rest_settings import RestSettings
from tidegate.web.answers import Document, on_fault, on_http_error, on_refusal
from tidegate.web.endpoints import Endpoint, endpoints
from tidegate.web.guard import Guard
from tidegate.web.job_api import JobApi
from tidegate.web.openapi import openapi
from tidegate.web.operations import Operations
from tidegate.web.order_api import OrderApi
from tidegate.web.requests import Refusal
from tidegate.web.served_jobs import ServedJobs
from tidegate.web.shared_answers import Handler, SharedAnswers

_VERSION = "/v1"
"""All paths exist below it as well, as in Flink."""


def application(
    jobs: ServedJobs, operations: Operations, settings: RestSettings, owner_token: str
) -> Starlette:
    """What a server serves."""
    found = endpoints(JobApi(jobs), OrderApi(jobs, operations))
    document = openapi(found)

    async def described(request: Request) -> Response:
        return Document(document)

    shared = SharedAnswers()
    by_path: dict[str, list[Endpoint]] = {}
    for endpoint in found:
        by_path.setdefault(endpoint.path, []).append(endpoint)
    # Fixed words before parameters: /checkpoints/config is no trigger id.
    ordered = sorted(by_path.items(), key=lambda item: re.sub(r"{\w+}", "~", item[0]))
    routes: list[BaseRoute] = []
    for prefix in ("", _VERSION):
        routes.append(Route(f"{prefix}/openapi.json", described, methods=["GET"]))
        for path, of_path in ordered:
            methods = {
                endpoint.method: shared.of(endpoint.handler)
                if endpoint.method == "GET"
                else endpoint.handler
                for endpoint in of_path
            }
            routes.append(Route(f"{prefix}{path}", _by_method(methods), methods=list(methods)))
    app = Starlette(
        routes=routes,
        middleware=[Middleware(Guard, settings=settings, owner_token=owner_token)],
        exception_handlers={
            Refusal: on_refusal,
            HTTPException: on_http_error,
            Exception: on_fault,
        },
    )
    app.router.redirect_slashes = False
    return app


def _by_method(methods: dict[str, Handler]) -> Handler:
    async def handle(request: Request) -> Response:
        method = "GET" if request.method == "HEAD" else request.method
        return await methods[method](request)

    return handle
