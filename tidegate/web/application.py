"""The REST API and the dashboard as an ASGI application."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from tidegate.core.rest_settings import RestSettings
from tidegate.web.answers import Document, on_fault, on_http_error, on_refusal
from tidegate.web.api.diagnostics import DiagnosticsApi
from tidegate.web.api.jobs import JobApi
from tidegate.web.api.live import LiveApi
from tidegate.web.api.machine import MachineApi
from tidegate.web.api.orders import OrderApi
from tidegate.web.api.starts import StartApi
from tidegate.web.api.states import StateApi
from tidegate.web.archive import Archive
from tidegate.web.documents.driver import ServerKind
from tidegate.web.endpoints import Endpoint, endpoints
from tidegate.web.hub import Hub
from tidegate.web.openapi import openapi
from tidegate.web.operations import Operations
from tidegate.web.recent_logs import RecentLogs
from tidegate.web.requests import Refusal
from tidegate.web.served_jobs import ServedJobs
from tidegate.web.serving.guard import Guard
from tidegate.web.serving.logins import Logins
from tidegate.web.serving.pages import FOLDER, Pages
from tidegate.web.serving.shared_answers import Handler, SharedAnswers
from tidegate.web.state_browser import StateBrowser

_VERSION = "/v1"
"""All paths exist below it, too, as in Flink."""


class Application:
    """The application of a server, and its parts."""

    def __init__(
        self,
        jobs: ServedJobs,
        operations: Operations,
        settings: RestSettings,
        owner_token: str,
        logins: Logins | None = None,
        logs: RecentLogs | None = None,
        kind: ServerKind = "driver",
    ) -> None:
        logins = logins or Logins()
        archive = Archive()
        machine = MachineApi(jobs, settings, logins, archive, kind)
        self._browser = StateBrowser()
        self.hub = Hub(jobs, operations, machine.jobs_of_machine)
        self.endpoints = endpoints(
            machine,
            JobApi(jobs, self.hub),
            LiveApi(self.hub),
            OrderApi(jobs, operations),
            DiagnosticsApi(jobs, logs or RecentLogs()),
            StateApi(jobs, self._browser),
            StartApi(operations),
        )
        self.asgi = Starlette(
            routes=[*_routes(self.endpoints, settings, archive), *_pages()],
            middleware=[
                Middleware(Guard, settings=settings, owner_token=owner_token, logins=logins)
            ],
            exception_handlers={
                Refusal: on_refusal,
                HTTPException: on_http_error,
                Exception: on_fault,
            },
            lifespan=self._live,
        )
        self.asgi.router.redirect_slashes = False

    @asynccontextmanager
    async def _live(self, app: Starlette) -> AsyncIterator[None]:
        looking = asyncio.get_running_loop().create_task(self.hub.run())
        yield
        await self._browser.close()
        looking.cancel()


def _pages() -> list[BaseRoute]:
    pages = Pages()
    return [Route("/", pages.start), Route(f"{FOLDER}{{path:path}}", pages.file)]


def _routes(found: list[Endpoint], settings: RestSettings, archive: Archive) -> list[BaseRoute]:
    document = openapi(found)

    async def described(request: Request) -> Response:
        return Document(document)

    shared = SharedAnswers()
    by_path: dict[str, list[Endpoint]] = {}
    for endpoint in found:
        by_path.setdefault(endpoint.said.path, []).append(endpoint)
    # Fixed parts before parameters: /checkpoints/config is not a trigger id.
    ordered = sorted(by_path.items(), key=lambda item: re.sub(r"{\w+}", "~", item[0]))
    routes: list[BaseRoute] = []
    for prefix in ("", _VERSION):
        routes.append(Route(f"{prefix}/openapi.json", described, methods=["GET"]))
        for path, of_path in ordered:
            methods = {
                each.said.method: shared.of(each.handler(settings))
                if each.said.is_shared
                else each.handler(settings)
                for each in of_path
            }
            routes.append(
                Route(f"{prefix}{path}", _by_method(methods, archive), methods=list(methods))
            )
    return routes


def _by_method(methods: dict[str, Handler], archive: Archive) -> Handler:
    async def handle(request: Request) -> Response:
        method = "GET" if request.method == "HEAD" else request.method
        try:
            return await methods[method](request)
        except Refusal as refusal:
            path = request.scope["path"].removeprefix(_VERSION)
            archived = archive.answer(path) if (method, refusal.status) == ("GET", 404) else None
            if archived is None:
                raise
            return Document(archived)

    return handle
