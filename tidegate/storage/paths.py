"""Relative paths that stay where they belong."""

from __future__ import annotations

from tidegate.core.errors import StorageError


def checked(path: str, where: str) -> str:
    """The path, if it leads nowhere but below the directory it is relative to."""
    if path.startswith("/") or "\0" in path or ".." in path.split("/"):
        raise StorageError(where, f"{path!r} leads out of this directory", "use a relative path")
    return path.strip("/")
