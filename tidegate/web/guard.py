"""Which requests the server accepts, and at what rate; decided before a request is read."""

from __future__ import annotations

import asyncio
import secrets
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from tidegate.core.rest_settings import RestSettings
from tidegate.web.answers import refused
from tidegate.web.registry import token_file
from tidegate.web.requests import Refusal
from tidegate.web.shared_answers import ARRIVED

OWNER = "tidegate.owner"
"""In the scope of a request: whether it comes from who started the job."""
_RATE = 300.0
_BURST = 100.0
_READING = ("GET", "HEAD")
_LOCAL_NAMES = ("localhost", "127.0.0.1", "::1")


class Pace:
    """So many turns a second: the driver shares its interpreter with the server."""

    def __init__(self, rate: float = _RATE, burst: float = _BURST) -> None:
        self._gap = 1.0 / rate
        self._ahead = burst / rate
        self._next = 0.0

    def wait(self, now: float) -> float:
        """Take the next turn; how many seconds it is away."""
        self._next = max(self._next, now - self._ahead) + self._gap
        return max(0.0, self._next - now)


class Guard:
    """Refuses who has no token, other names of this machine, and pages of other origins.

    Without a token in the settings everybody may read, and the owner may give orders.
    """

    def __init__(self, app: ASGIApp, settings: RestSettings, owner_token: str) -> None:
        self._app = app
        self._settings = settings
        self._owner_token = owner_token
        self._pace = Pace()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        scope[ARRIVED] = now = asyncio.get_running_loop().time()
        # Also without a wait: who has come by now is answered together.
        await asyncio.sleep(self._pace.wait(now))
        try:
            scope[OWNER] = self._let_in(scope["method"], Headers(scope=scope))
        except Refusal as refusal:
            await refused(refusal)(scope, receive, send)
            return
        await self._app(scope, receive, send)

    def _let_in(self, method: str, headers: Headers) -> bool:
        """Whether it is the owner.

        Raises:
            Refusal: the request is not accepted.
        """
        scheme, _, credentials = headers.get("authorization", "").partition(" ")
        given = credentials.strip() if scheme.lower() == "bearer" else ""
        is_owner = _equal(given, self._owner_token)
        token = self._settings.token
        is_known = is_owner or (token is not None and _equal(given, token))
        if not is_known and (token is not None or method not in _READING):
            advice = "" if token is not None else f"; the owner finds it in {token_file()}"
            raise Refusal(
                401,
                f"the token is missing or wrong: send it as Authorization: Bearer <token>{advice}",
                {"www-authenticate": "Bearer"},
            )
        host = headers.get("host", "")
        name = _name_of(host)
        # A page elsewhere may have a name that it lets point to this machine.
        if self._settings.is_loopback and name not in (*_LOCAL_NAMES, self._settings.address):
            raise Refusal(403, f"the host {host!r} is not this machine: ask for localhost")
        origin = headers.get("origin")
        if origin is not None and origin.partition("://")[2] != host:
            raise Refusal(403, f"pages of {origin!r} may not use this API")
        return is_owner


def _name_of(host: str) -> str | None:
    try:
        return urlsplit(f"//{host}").hostname if _is_plain(host) else None
    except ValueError:
        return None


def _is_plain(host: str) -> bool:
    return bool(host) and all(letter.isalnum() or letter in ".-:[]" for letter in host)


def _equal(given: str, expected: str) -> bool:
    return secrets.compare_digest(given.encode(), expected.encode())
