"""Temporary directories that only their user can access, and that end with their process."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
import time
import weakref
from contextlib import suppress
from pathlib import Path

_KINDS = ("exchange", "job", "slot", "spark", "stream")
_LONGEST_PARENT = 50
"""Short, because the path of a socket must not exceed about 100 bytes."""
_BEGINNING_SECONDS = 60.0
"""How long a directory may exist before its process has locked it."""


class PrivateDirectory:
    """A new directory of mode 0700, removed on request, or when the process ends.

    Its process keeps it locked. The kernel releases the lock of a killed process, so the next
    process recognizes and removes what is left.
    """

    def __init__(self, kind: str) -> None:
        assert kind in _KINDS
        usual = tempfile.gettempdir()
        parent = Path(usual if len(usual) <= _LONGEST_PARENT else "/tmp")
        _remove_abandoned(parent)
        self.path = Path(tempfile.mkdtemp(prefix=f"tidegate-{kind}-", dir=parent))
        lock = _locked(self.path)
        self.remove = weakref.finalize(self, _remove, self.path, lock, os.getpid())
        """Remove it now; does nothing the second time."""


def _remove(path: Path, lock: int | None, owner: int) -> None:
    if os.getpid() != owner:
        return  # in a fork of its process
    shutil.rmtree(path, ignore_errors=True)
    if lock is not None:
        os.close(lock)


def _locked(path: Path) -> int | None:
    """The file descriptor that locks the directory; None: another process does, or it is gone."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:
        return None
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(file)
        return None
    return file


def _remove_abandoned(parent: Path) -> None:
    """Remove directories of this user whose process was killed."""
    latest = time.time() - _BEGINNING_SECONDS
    for kind in _KINDS:
        for path in parent.glob(f"tidegate-{kind}-*"):
            with suppress(OSError):
                found = path.lstat()
                if found.st_uid != os.getuid() or found.st_mtime > latest:
                    continue
                lock = _locked(path)
                if lock is not None:
                    shutil.rmtree(path, ignore_errors=True)
                    os.close(lock)
