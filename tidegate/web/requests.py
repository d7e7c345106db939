"""Parses requests, and refuses invalid ones."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

from starlette.requests import ClientDisconnect, Request

from tidegate.web.forms import F, NotOfForm, parsed

OWNER = "tidegate.owner"
"""In the scope of a request: whether it comes from the owner of the job."""
KNOWN = "tidegate.known"
"""In the scope of a request: whether it has a valid token."""
MOST_BYTES = 64 * 1024
"""The maximum size of a body."""
_MOST_DISCARDED = 16 << 20
"""Longer bodies are not even read to the end before they are refused."""
_ID = re.compile(r"[0-9a-f]{32}")
_NUMBER = re.compile(r"[0-9]{1,18}")


class Refusal(Exception):
    """An answer other than the requested one: a status and a message."""

    def __init__(
        self, status: int, sentence: str, headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(status, sentence)
        self.status = status
        self.sentence = sentence
        self.headers = dict(headers or {})


def identity(text: str, what: str) -> str:
    """Check the form of an id.

    Raises:
        Refusal: it is invalid.
    """
    if _ID.fullmatch(text) is None:
        raise Refusal(400, f"{text!r} is not the id of a {what}: ids have 32 hexadecimal digits")
    return text


def whole_number(text: str, what: str) -> int:
    """Parse a non-negative number.

    Raises:
        Refusal: it is invalid.
    """
    if _NUMBER.fullmatch(text) is None:
        raise Refusal(400, f"{text!r} is not a {what}: give a whole number")
    return int(text)


async def body_of(request: Request, form: type[F]) -> F:
    """Parse the body of a request; an empty body is an empty object.

    Raises:
        Refusal: it is too long, or does not match the form.
    """
    content = await _content(request)
    try:
        return parsed(form, json.loads(content) if content.strip() else {})
    except NotOfForm as error:
        raise Refusal(400, str(error)) from None
    except (ValueError, RecursionError) as error:
        reason = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise Refusal(400, f"the body is not JSON: {reason}") from None


async def _content(request: Request) -> bytes:
    content = bytearray()
    seen = 0
    try:
        async for chunk in request.stream():
            seen += len(chunk)
            if seen <= MOST_BYTES:
                content += chunk
            elif seen > _MOST_DISCARDED:
                break
    except ClientDisconnect:
        raise Refusal(400, "the request ended in the middle of its body") from None
    if seen > MOST_BYTES:
        raise Refusal(413, f"the body has more than {MOST_BYTES} bytes", {"connection": "close"})
    return bytes(content)
