"""A driver that is only played: it answers as docs/rest-api.md says, for jobs of any size.

For what no real job can show within a test: 200 operators with 100 subtasks each, names and
records that attack the page, a driver that dies and comes back at the same address.
"""

from __future__ import annotations

import asyncio
import json
import math
import mimetypes
import socket
import threading
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response, StreamingResponse
from starlette.routing import Route

import tidegate
from tests.programs import wait_until

FILES = Path(tidegate.__file__).parent / "web" / "dashboard"
JID = "3f2a5c0e8d1b4f6a9c7e2d4b6a8f0c1e"
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "font-src 'self'; connect-src 'self'; manifest-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'"
)


def milliseconds() -> int:
    return int(1000 * time.time())


class PlayedJob:
    """A job as documents: a few sources, layers of operators, sinks."""

    def __init__(self, vertices: int = 6, parallelism: int = 4, name: str = "page views") -> None:
        self.parallelism = parallelism
        self.name = name
        self.begun = milliseconds() - 754_000
        self.ids = [f"{number:032x}" for number in range(vertices)]
        width = max(1, round(math.sqrt(vertices)) - 1)
        self.edges = [
            (source, target)
            for target in range(width, vertices)
            for source in sorted({target - width, max(0, target - width - target % 3)})
        ]
        self.names = [self._name(number, width, vertices) for number in range(vertices)]

    def _name(self, number: int, width: int, vertices: int) -> str:
        if number < width:
            return f"Source: views {number} -> Parse"
        if number >= vertices - width:
            return f"Totals {number} -> Sink: files {number}"
        return f"Window of a minute {number}"

    def live(self) -> dict[str, Any]:
        now = milliseconds()
        wave = 1 + 0.2 * math.sin(now / 4000)
        seconds = (now - self.begun) / 1000
        return {
            "jid": JID,
            "name": self.name,
            "state": "RUNNING",
            "now": now,
            "start-time": self.begun,
            "end-time": -1,
            "duration": now - self.begun,
            "uptime": now - self.begun,
            "restarts": 1,
            "restart": None,
            "started": True,
            "records-in": int(52_000 * seconds),
            "records-out": int(5_200 * seconds),
            "records-in-per-second": 52_000 * wave,
            "records-out-per-second": 5_200 * wave,
            "lag": 1_200,
            "records-to-repeat": 0,
            "watermark-lag": 2_300,
            "steps": 5_120,
            "step-duration": 81,
            "state-size": 734_003_200,
            "memory": 1_412_000_000,
            "guarantees": [
                {
                    "sink": "Sink: files",
                    "guarantee": "exactly-once",
                    "why": "commits with the checkpoint",
                }
            ],
            "checkpoints": {
                "completed": 51,
                "failed": 1,
                "in-progress": 0,
                "last": {
                    "id": 52,
                    "kind": "CHECKPOINT",
                    "completed": now - 3_000,
                    "duration": 120,
                    "size": 734_003_200,
                    "path": "/data/chk/chk-52",
                },
                "last-failure": None,
            },
            "failure": None,
            "operations": [],
            "vertices": [self._vertex(number, wave) for number in range(len(self.ids))],
            "edges": [
                {
                    "id": number,
                    "source": self.ids[source],
                    "target": self.ids[target],
                    "ship-strategy": "HASH",
                    "side-output": None,
                    "records": 100,
                    "bytes": 2048,
                    "records-per-second": 9_000 * wave,
                    "bytes-per-second": 204_800 * wave,
                }
                for number, (source, target) in enumerate(self.edges)
            ],
        }

    def _vertex(self, number: int, wave: float) -> dict[str, Any]:
        busy = min(0.95, (0.1 + 0.8 * ((number * 7) % 10) / 10) * wave)
        held = min(1 - busy, 0.3 if number % 5 == 1 else 0.0)
        return {
            "id": self.ids[number],
            "name": self.names[number],
            "status": "RUNNING",
            "parallelism": self.parallelism,
            "attempt": 2,
            "records-in": 120_000,
            "records-out": 119_000,
            "records-in-per-second": 9_000 * wave,
            "records-out-per-second": 8_900 * wave,
            "bytes-out-per-second": 1.0e6,
            "busy": busy,
            "back-pressured": held,
            "idle": 1 - busy - held,
            "busy-max": min(1, busy * 1.2),
            "skew": 0.12,
            "watermark": milliseconds() - 2_300,
            "watermark-lag": 2_300,
            "idle-channels": 0,
            "pending": 1_200,
            "state-size": 7_340_032,
            "skipped": 0,
        }

    def points(self, seconds: int, now: int) -> dict[str, Any]:
        times = list(range(now - seconds + 1, now + 1))
        wave = [1 + 0.2 * math.sin(each / 40) for each in times]
        return {
            "resolution": 1,
            "times": times,
            "job": {
                "records-in-per-second": [52_000 * each for each in wave],
                "records-out-per-second": [5_200 * each for each in wave],
                "lag": [1_000 * each for each in wave],
                "watermark-lag": [2_000 * each for each in wave],
                "step-duration": [80 * each for each in wave],
                "memory": [1.4e9 for _ in wave],
                "state-size": [7.3e8 for _ in wave],
            },
            "vertices": {},
        }

    def subtasks(self, vertex: str) -> dict[str, Any]:
        return {
            "id": vertex,
            "name": "vertex",
            "parallelism": self.parallelism,
            "maxParallelism": 128,
            "now": milliseconds(),
            "subtasks": [
                {
                    "subtask": number,
                    "status": "RUNNING",
                    "attempt": 1,
                    "endpoint": f"slot-{number}",
                    "metrics": {
                        "read-bytes": 0,
                        "write-bytes": 20_480,
                        "read-records": 1_000 + 13 * number,
                        "write-records": 900,
                    },
                    "tidegate": {
                        "records-in-per-second": 90.0,
                        "records-out-per-second": 80.0,
                        "busy": 0.4,
                        "back-pressured": 0.1,
                        "idle": 0.5,
                        "watermark": milliseconds(),
                        "watermark-lag": 10,
                        "pending": None,
                        "state-size": 73_400,
                        "host": "box",
                        "pid": 4_711 + number,
                        "memory": 41_200_000,
                    },
                }
                for number in range(self.parallelism)
            ],
            "tidegate": {"operators": [], "skipped": 0},
        }


class PlayedDriver:
    """Serves one played job and the page; `die` and `revive` keep the address."""

    def __init__(self, job: PlayedJob) -> None:
        self.job = job
        self.is_silent = False
        self.pace = 1.0
        self._socket = _bound(0)
        self.port = self._socket.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self._serve()

    def die(self) -> None:
        self._server.should_exit = True
        self._server.force_exit = True
        self._thread.join()
        self._socket.close()

    def revive(self) -> None:
        self._socket = _bound(self.port)
        self._serve()

    def _serve(self) -> None:
        self._server = uvicorn.Server(
            uvicorn.Config(
                self._application(),
                log_config=None,
                log_level="critical",
                lifespan="off",
                timeout_graceful_shutdown=0,
            )
        )
        self._thread = threading.Thread(
            target=self._server.run, args=([self._socket],), daemon=True
        )
        self._thread.start()
        wait_until(lambda: self._server.started)

    def _application(self) -> Starlette:
        return Starlette(
            routes=[
                Route("/", self._file),
                Route("/dashboard/{path:path}", self._file),
                Route("/tidegate/events", self._events),
                Route("/{path:path}", self._document),
            ]
        )

    async def _file(self, request: Request) -> Response:
        path = FILES / request.path_params.get("path", "index.html")
        kind = mimetypes.guess_type(path)[0]
        return FileResponse(path, media_type=kind, headers={"content-security-policy": POLICY})

    async def _events(self, request: Request) -> Response:
        async def events() -> AsyncIterator[str]:
            number, begun = 0, int(time.time())
            yield _event(0, "jobs", self.jobs())
            if "job" in request.query_params:
                yield _event(0, "job", self.job.live())
            while not self._server.should_exit:
                await asyncio.sleep(self.pace)
                number += 1
                if self.is_silent:
                    continue
                if "job" in request.query_params:
                    yield _event(number, "job", self.job.live())
                    yield _event(number, "points", self.job.points(1, begun + number))
                else:
                    yield ": \n\n"

        return StreamingResponse(events(), media_type="text/event-stream")

    def jobs(self) -> dict[str, Any]:
        live = self.job.live()
        listed = {
            key: live[key] for key in ("jid", "name", "state", "start-time", "end-time", "duration")
        }
        more = {
            "here": True,
            "url": self.url,
            "pid": 1,
            "archived": False,
            "failure": None,
            "command": [],
        }
        return {"jobs": [{**listed, **more}]}

    async def _document(self, request: Request) -> Response:
        path = request.url.path
        found = self.answer(path)
        return (
            JSONResponse(found) if found is not None else JSONResponse({"errors": ["unknown"]}, 404)
        )

    def answer(self, path: str) -> Any:
        parts = path.strip("/").split("/")
        match parts:
            case ["config"]:
                rights = {"read-only": True, "may-act": False, "may-look": True}
                return {
                    "tidegate": {
                        "version": "played",
                        "server": "driver",
                        "pid": 1,
                        "host": "box",
                        **rights,
                    }
                }
            case ["tidegate", "jobs", _, "live"]:
                return self.job.live()
            case ["tidegate", "jobs", _, "history"]:
                return self.job.points(600, int(time.time()))
            case ["jobs", _, "vertices", vertex]:
                return self.job.subtasks(vertex)
            case _:
                return None


def _event(number: int, name: str, data: Any) -> str:
    return f"id: {number}\nevent: {name}\ndata: {json.dumps(data)}\n\n"


def _bound(port: int) -> socket.socket:
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", port))
    return listener
