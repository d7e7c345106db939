"""The files of the dashboard, from the package."""

from __future__ import annotations

import gzip
import hashlib
from dataclasses import dataclass
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response

from tidegate.web.requests import Refusal

FOLDER = "/dashboard/"
_ROOT = Path(__file__).parents[1] / "dashboard"
_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".ico": "image/x-icon",
    ".js": "text/javascript; charset=utf-8",
    ".json": "application/json",
    ".mjs": "text/javascript; charset=utf-8",
    ".png": "image/png",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
    ".webmanifest": "application/manifest+json",
    ".woff2": "font/woff2",
}
_PACKED = (".ico", ".png", ".woff2")
_HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
        "font-src 'self'; connect-src 'self'; manifest-src 'self'; base-uri 'none'; "
        "form-action 'none'; frame-ancestors 'none'"
    ),
    "cache-control": "no-cache",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "vary": "accept-encoding",
    "x-content-type-options": "nosniff",
}


@dataclass(frozen=True, slots=True)
class _File:
    changed: int
    tag: str
    plain: bytes
    packed: bytes | None


class Pages:
    """Serves `/` and `/dashboard/`."""

    def __init__(self, root: Path = _ROOT) -> None:
        self._root = root
        self._files: dict[Path, _File] = {}

    async def start(self, request: Request) -> Response:
        """The page itself."""
        return self._answer(request, "index.html")

    async def file(self, request: Request) -> Response:
        """A file of the page."""
        return self._answer(request, request.path_params["path"])

    def _answer(self, request: Request, name: str) -> Response:
        path = self._root / name
        parts = name.split("/")
        if path.suffix not in _TYPES or any(not part.strip(".") for part in parts):
            raise Refusal(404, f"the dashboard has no file {name!r}")
        try:
            file = self._read(path)
        except (OSError, ValueError):
            raise Refusal(404, f"the dashboard has no file {name!r}") from None
        headers = {**_HEADERS, "etag": file.tag}
        if request.headers.get("if-none-match") == file.tag:
            return Response(status_code=304, headers=headers)
        headers["content-type"] = _TYPES[path.suffix]
        if file.packed is not None and "gzip" in request.headers.get("accept-encoding", ""):
            return Response(file.packed, headers={**headers, "content-encoding": "gzip"})
        return Response(file.plain, headers=headers)

    def _read(self, path: Path) -> _File:
        changed = path.stat().st_mtime_ns
        known = self._files.get(path)
        if known is None or known.changed != changed:
            plain = path.read_bytes()
            tag = f'"{hashlib.sha256(plain).hexdigest()[:20]}"'
            packed = None if path.suffix in _PACKED else gzip.compress(plain, mtime=0)
            known = self._files[path] = _File(changed, tag, plain, packed)
        return known
