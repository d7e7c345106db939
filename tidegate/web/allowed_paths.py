"""The directories in which requests may write and delete savepoints."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable
from pathlib import Path
from urllib.parse import unquote, urlsplit

from tidegate.core.config import Settings
from tidegate.storage.locations import is_url, local_path, shown


def is_storage_path(text: str) -> bool:
    """Whether it can be a path or URL at all."""
    try:
        address = urlsplit(text) if is_url(text) else None
        _ = None if address is None else address.port
    except ValueError:
        return False
    return bool(text) and text.isprintable()


def savepoint_directories(settings: Settings) -> tuple[str, ...]:
    """The directories that the settings of a job allow."""
    own = settings.checkpointing.savepoint_directory
    return (*([own] if own else []), *settings.rest.savepoint_directories)


def allowed_path(wanted: str, directories: Iterable[str]) -> str | None:
    """The path to use for a requested one; None: it is outside these directories.

    Links and ".." are resolved first. A URL gets the directory's settings after the "?": a request
    must not choose the server.
    """
    for directory in directories:
        try:
            if is_url(wanted) and local_path(wanted) is None:
                found = _below_url(wanted, directory)
            else:
                found = _below_directory(wanted, directory)
        except ValueError:
            continue  # it is not a URL
        if found is not None:
            return found
    return None


def refused_path(wanted: str, directories: Iterable[str]) -> str:
    """Why a path is refused, as a sentence."""
    names = ", ".join(shown(directory) for directory in directories)
    if not names:
        return (
            f"{shown(wanted)}: no directory for savepoints is set, so requests cannot choose one; "
            "set execution.checkpointing.savepoint-dir or tidegate.rest.savepoint-directories"
        )
    return (
        f"{shown(wanted)} is outside the directories for savepoints: {names}; choose one below "
        "them, or add it to tidegate.rest.savepoint-directories"
    )


def _below_directory(wanted: str, directory: str) -> str | None:
    root, inner = local_path(directory), local_path(wanted)
    if root is None or inner is None:
        return None
    # Symbolic links of others must not lead out of the directory.
    real = Path(inner).resolve()
    return str(real) if real.is_relative_to(root.resolve()) else None


def _below_url(wanted: str, directory: str) -> str | None:
    if not is_url(directory):
        return None
    asked, allowed = urlsplit(wanted), urlsplit(directory)
    same_server = (asked.scheme, asked.netloc.rpartition("@")[2]) == (
        allowed.scheme,
        allowed.netloc.rpartition("@")[2],
    )
    path = unquote(asked.path)
    if not same_server or asked.query or asked.fragment or path != posixpath.normpath(path):
        return None
    root = allowed.path.rstrip("/")
    if path != root and not path.startswith(f"{root}/"):
        return None
    return allowed._replace(path=asked.path).geturl()
