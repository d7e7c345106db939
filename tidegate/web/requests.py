"""What a request may contain, and what it is told when it does not."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from starlette.requests import ClientDisconnect, Request

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


async def body_of(request: Request, schema: Mapping[str, Any]) -> dict[str, Any]:
    """The object in the body of a request; an empty body is an empty object.

    Raises:
        Refusal: it is too long, or not what the schema asks for.
    """
    content = await _content(request)
    if not content.strip():
        return checked({}, schema)
    try:
        document = json.loads(content)
    except (ValueError, RecursionError) as error:
        reason = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise Refusal(400, f"the body is not JSON: {reason}") from None
    return checked(document, schema)


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


def checked(document: Any, schema: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of an object that is as its schema says; those that are null count as absent.

    Raises:
        Refusal: it is not.
    """
    if not isinstance(document, dict):
        raise Refusal(400, "the body has to be a JSON object")
    known: Mapping[str, Mapping[str, Any]] = schema["properties"]
    found: dict[str, Any] = {}
    for key, value in document.items():
        if key not in known:
            raise Refusal(400, f"there is no field {key!r}; there are: {', '.join(known)}")
        if value is not None:
            found[key] = _checked_value(key, value, known[key])
    for key in schema.get("required", ()):
        if key not in found:
            raise Refusal(400, f"the field {key!r} is missing")
    return found


def _checked_value(key: str, value: Any, schema: Mapping[str, Any]) -> Any:
    if "boolean" in schema["type"]:
        if not isinstance(value, bool):
            raise Refusal(400, f"{key} = {json.dumps(value)}: give true or false")
        return value
    if not isinstance(value, str):
        raise Refusal(400, f"{key} = {json.dumps(value)[:200]}: give text")
    if "enum" in schema and value not in schema["enum"]:
        choices = ", ".join(str(each) for each in schema["enum"] if each is not None)
        raise Refusal(400, f"{key} = {value!r}: give one of {choices}")
    if "pattern" in schema and re.fullmatch(schema["pattern"].strip("^$"), value) is None:
        raise Refusal(400, f"{key} = {value!r}: give text of the form {schema['pattern']}")
    if not value.isprintable():
        raise Refusal(400, f"{key} = {value!r}: give text that can be printed")
    return value
