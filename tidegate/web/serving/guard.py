"""Decides which requests are accepted, and at what rate, before they are read."""

from __future__ import annotations

import asyncio
import secrets
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from tidegate.core.rest_settings import RestSettings
from tidegate.web.answers import refused
from tidegate.web.registry import token_file
from tidegate.web.requests import KNOWN, OWNER, Refusal
from tidegate.web.serving.logins import Logins
from tidegate.web.serving.pages import FOLDER
from tidegate.web.serving.shared_answers import ARRIVED

SESSION = "/tidegate/session"
"""Where a code is exchanged for a token."""
_RATE = 300.0
_BURST = 100.0
_READING = ("GET", "HEAD")
_LOCAL_NAMES = ("localhost", "127.0.0.1", "::1")


class Pace:
    """Limits requests per second: the server shares the interpreter with the driver."""

    def __init__(self, rate: float = _RATE, burst: float = _BURST) -> None:
        self._gap = 1.0 / rate
        self._ahead = burst / rate
        self._next = 0.0

    def wait(self, now: float) -> float:
        """Take the next turn; returns the seconds until then."""
        self._next = max(self._next, now - self._ahead) + self._gap
        return max(0.0, self._next - now)


class Guard:
    """Refuses requests without a token, for other host names, or from other origins.

    Without a token in the settings, everybody may read, and the owner may give orders. The files of
    the dashboard are public.
    """

    def __init__(
        self, app: ASGIApp, settings: RestSettings, owner_token: str, logins: Logins
    ) -> None:
        self._app = app
        self._settings = settings
        self._owner_token = owner_token
        self._logins = logins
        self._pace = Pace()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        scope[ARRIVED] = now = asyncio.get_running_loop().time()
        # Even without a wait, so that concurrent requests share an answer.
        await asyncio.sleep(self._pace.wait(now))
        headers = Headers(scope=scope)
        try:
            self._check_host(headers)
            scope[OWNER], scope[KNOWN] = self._who(headers)
            self._check_rights(scope["method"], scope["path"], is_known=scope[KNOWN])
            self._check_origin(headers)
        except Refusal as refusal:
            await refused(refusal)(scope, receive, send)
            return
        await self._app(scope, receive, send)

    def _check_host(self, headers: Headers) -> None:
        if _name_of(headers.get("host", "")) is None:
            raise Refusal(400, f"{headers.get('host', '')!r} is not a host name")

    def _who(self, headers: Headers) -> tuple[bool, bool]:
        """Whether it is the owner, and whether it has a valid token."""
        scheme, _, credentials = headers.get("authorization", "").partition(" ")
        given = credentials.strip() if scheme.lower() == "bearer" else ""
        is_owner = _equal(given, self._owner_token) or self._logins.knows(given)
        token = self._settings.token
        return is_owner, is_owner or (token is not None and _equal(given, token))

    def _check_rights(self, method: str, path: str, *, is_known: bool) -> None:
        path = path.removeprefix("/v1")
        is_reading = method in _READING
        if path == SESSION or (is_reading and (path == "/" or path.startswith(FOLDER))):
            return
        if not is_known and (self._settings.token is not None or not is_reading):
            raise unknown(self._settings)
        if self._settings.read_only and not is_reading:
            raise Refusal(403, "this server is read-only: tidegate.rest.read-only is set")

    def _check_origin(self, headers: Headers) -> None:
        host = headers.get("host", "")
        # A foreign page may have a name that resolves to this machine.
        local = (*_LOCAL_NAMES, self._settings.address)
        if self._settings.is_loopback and _name_of(host) not in local:
            raise Refusal(403, f"the host {host!r} is not this machine: use localhost")
        origin = headers.get("origin")
        if origin is not None and origin.partition("://")[2] != host:
            raise Refusal(403, f"pages of {origin!r} may not use this API")


def unknown(settings: RestSettings) -> Refusal:
    """The refusal of a request without a token."""
    advice = "" if settings.token is not None else f"; the owner finds it in {token_file()}"
    return Refusal(
        401,
        f"the token is missing or wrong: send it as Authorization: Bearer <token>{advice}",
        {"www-authenticate": "Bearer"},
    )


def _name_of(host: str) -> str | None:
    try:
        return urlsplit(f"//{host}").hostname if _is_plain(host) else None
    except ValueError:
        return None


def _is_plain(host: str) -> bool:
    return bool(host) and all(letter.isalnum() or letter in ".-:[]" for letter in host)


def _equal(given: str, expected: str) -> bool:
    return secrets.compare_digest(given.encode(), expected.encode())
