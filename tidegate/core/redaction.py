"""Keeps secrets out of answers, messages, plans and logs."""

from __future__ import annotations

import re
from typing import Any

HIDDEN = "******"
_PARTS = (
    "password",
    "passwd",
    "passphrase",
    "secret",
    "token",
    "apikey",
    "accesskey",
    "accountkey",
    "privatekey",
    "sharedkey",
    "credential",
    "jaas",
)
"""A key that contains one of these, ignoring punctuation, is secret."""
_WORDS = frozenset(("auth", "authorization", "dsn", "pwd", "sas", "sig", "signature"))
_PUNCTUATION = re.compile(r"[^a-z0-9]+")
_LOGIN = re.compile(
    # Up to the "@" before the next "/", or up to the next "@" if the password contains a "/".
    r"""(?i)\b(?!abfss?:|wasbs?:)([a-z][a-z0-9+.-]*://)"""
    r"""(?:[^\s/"'\\<>]*@|[^\s/@:"'\\<>]*:(?!\d+/)[^\s@"'\\<>]*@)"""
)
_ASSIGNED = re.compile(r"""([\w.-]+)(\s?=\s?)("[^"]*"|'[^']*'|[^\s&;,"'\\)}\]]+)""")
_ENTRY = re.compile(r"""(["'])([\w.-]+)\1(\s*:\s*)("[^"]*"|'[^']*')""")
_BEARER = re.compile(r"(?i)\b(bearer\s+)[\w.~+/-]{8,}=*")


def is_secret(key: str) -> bool:
    """Whether a setting or parameter of this name is secret."""
    words = _PUNCTUATION.split(key.lower())
    joined = "".join(words)
    return any(part in joined for part in _PARTS) or not _WORDS.isdisjoint(words)


def redacted(text: str) -> str:
    """The text without logins in URLs and without values of secret names."""
    if "://" in text:
        text = _LOGIN.sub(r"\1", text)
    if "=" in text:
        text = _ASSIGNED.sub(_hide_assigned, text)
    if "':" in text or '":' in text:
        text = _ENTRY.sub(_hide_entry, text)
    if "earer " in text:
        text = _BEARER.sub(rf"\1{HIDDEN}", text)
    return text


def redacted_document(content: Any) -> Any:
    """Redact every text in a JSON document."""
    if isinstance(content, str):
        return redacted(content)
    if isinstance(content, dict):
        return {key: redacted_document(value) for key, value in content.items()}
    if isinstance(content, list | tuple):
        return [redacted_document(value) for value in content]
    return content


def _hide_assigned(found: re.Match[str]) -> str:
    key, sign, value = found.groups()
    if is_secret(key):
        return f"{key}{sign}{HIDDEN}"
    mark = value[0] if value[0] in "\"'" else ""
    # The value may be a URL with secrets, too.
    return f"{key}{sign}{mark}{_ASSIGNED.sub(_hide_assigned, value[len(mark) :])}"


def _hide_entry(found: re.Match[str]) -> str:
    quote, key, sign, value = found.groups()
    return f"{quote}{key}{quote}{sign}{repr(HIDDEN) if is_secret(key) else value}"
