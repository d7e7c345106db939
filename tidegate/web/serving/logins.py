"""Logs in pages of the owner with one-time codes."""

from __future__ import annotations

import hashlib
import secrets
import time
from collections.abc import Callable

CODE_SECONDS = 300.0
_SESSION_SECONDS = 12 * 3600.0
_MOST = 1000


class Logins:
    """The codes and sessions of one server; used by the thread of its requests.

    A link may appear in a list of processes or in a browser's history, so it contains a code that
    is worthless once used. Only digests are stored.
    """

    def __init__(self, now: Callable[[], float] = time.time) -> None:
        self._now = now
        self._codes: dict[bytes, float] = {}
        self._sessions: dict[bytes, float] = {}

    def new_code(self) -> str:
        """A code for one login within the next minutes."""
        return _issue(self._codes, self._now(), CODE_SECONDS)

    def redeem(self, code: str) -> tuple[str, float] | None:
        """A token and its expiry; None: the code is unknown, used or expired."""
        until = self._codes.pop(_digest(code), 0.0)
        if until < self._now():
            return None
        return _issue(self._sessions, self._now(), _SESSION_SECONDS), (
            self._now() + _SESSION_SECONDS
        )

    def knows(self, token: str) -> bool:
        """Whether it is the token of a valid session."""
        return bool(token) and self._sessions.get(_digest(token), 0.0) > self._now()


def _issue(known: dict[bytes, float], now: float, seconds: float) -> str:
    for digest in [digest for digest, until in known.items() if until < now]:
        del known[digest]
    while len(known) >= _MOST:
        del known[next(iter(known))]
    secret = secrets.token_urlsafe(24)
    known[_digest(secret)] = now + seconds
    return secret


def _digest(secret: str) -> bytes:
    return hashlib.sha256(secret.encode()).digest()
