"""Deletes savepoints, for whoever has made them."""

from __future__ import annotations

import os

from tidegate.checkpoint.savepoints import dispose


def dispose_savepoint(path: str | os.PathLike[str]) -> tuple[str, ...]:
    """Delete a savepoint, or a checkpoint that was kept when its job ended.

    Args:
        path: its directory, as a path or URL.

    Returns:
        What stands in the directory without being a part of it, as paths there: it stays.

    Raises:
        NoCheckpoint: there is none at the path. Nothing is deleted.
        CorruptCheckpoint, UnsupportedFormat: it cannot be told what belongs to it. Nothing is
            deleted.
        StorageError: the storage refuses.
    """
    return dispose(os.fspath(path))
