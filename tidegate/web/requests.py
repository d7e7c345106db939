"""What a request may contain, and what it is told when it does not."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

from starlette.requests import ClientDisconnect, Request

from tidegate.web.forms import F, NotOfForm, parsed

OWNER = "tidegate.owner"
"""In the scope of a request: whether it comes from who started the job."""
KNOWN = "tidegate.known"
"""The same: whether it comes with a token that is right."""
MOST_BYTES = 64 * 1024
"""Of a body; no request needs more."""
_MOST_DISCARDED = 16 << 20
"""A longer body is not even read to its end to be refused politely."""
_ID = re.compile(r"[0-9a-f]{32}")
_NUMBER = re.compile(r"[0-9]{1,18}")


class Refusal(Exception):
    """An answer other than the one asked for: its status and a sentence."""

    def __init__(
        self, status: int, sentence: str, headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(status, sentence)
        self.status = status
        self.sentence = sentence
        self.headers = dict(headers or {})


def identity(text: str, what: str) -> str:
    """An id in the form that all have.

    Raises:
        Refusal: it has another one.
    """
    if _ID.fullmatch(text) is None:
        raise Refusal(400, f"{text!r} is no id of a {what}: these have 32 hexadecimal digits")
    return text


def whole_number(text: str, what: str) -> int:
    """A number that is not negative.

    Raises:
        Refusal: it is none.
    """
    if _NUMBER.fullmatch(text) is None:
        raise Refusal(400, f"{text!r} is no {what}: give a whole number")
    return int(text)


async def body_of(request: Request, form: type[F]) -> F:
    """The object in the body of a request; an empty body is an empty object.

    Raises:
        Refusal: it is too long, or not as the form says.
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
