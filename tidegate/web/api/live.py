"""Live data for pages: the current state of a job, its last hours, and a stream of changes."""

from __future__ import annotations

from typing import Annotated

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from tidegate.web.documents.live import Charts, LiveJob, charts
from tidegate.web.endpoints import endpoint
from tidegate.web.forms import Between, Form, Id
from tidegate.web.hub import Hub
from tidegate.web.live.history import COARSE, FINE
from tidegate.web.requests import Refusal

_HEADERS = {"cache-control": "no-store", "x-accel-buffering": "no"}


class HistoryQuery(Form):
    """Which points to return."""

    resolution: Annotated[int, "Seconds between two points: 1 or 15."] = FINE
    since: Annotated[int, Between(0, 10**15), "Milliseconds since the epoch."] = 0


class EventsQuery(Form):
    """Which job to watch."""

    job: Id | None = None


class LiveApi:
    """Each method answers one path."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub

    @endpoint("/tidegate/jobs/{jobid}/live")
    async def live(self, request: Request) -> LiveJob:
        """The current rates, load and lag of a job, by vertex and edge."""
        found = self._hub.watched(request.path_params["jobid"]).live
        assert found is not None
        return found

    @endpoint("/tidegate/jobs/{jobid}/history")
    async def history(self, request: Request, query: HistoryQuery) -> Charts:
        """Charts of the last ten minutes (resolution 1), or of the last twelve hours (15)."""
        if query.resolution not in (FINE, COARSE):
            raise Refusal(400, f"resolution = {query.resolution}: give {FINE} or {COARSE}")
        watched = self._hub.watched(request.path_params["jobid"])
        return charts(watched.history.rings[query.resolution].since(query.since / 1000))

    @endpoint(
        "/tidegate/events",
        content_type="text/event-stream",
        refusals=(400, 404, 429),
        is_shared=False,
    )
    async def events(self, request: Request, query: EventsQuery) -> Response:
        """The jobs of this machine, and one job, as server-sent events.

        A page that reconnects with Last-Event-ID gets the points that it missed.
        """
        frames = await self._hub.stream(query.job, request.headers.get("last-event-id"))
        return StreamingResponse(frames, media_type="text/event-stream", headers=_HEADERS)
