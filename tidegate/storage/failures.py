"""Failures of storage, with advice."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager

from tidegate.core.errors import BlobNotFound, StorageError
from tidegate.storage.blob_store import BlobWriter

_NO_SPACE = "free space there, or choose another directory"
_NO_RIGHT = (
    "let the user who runs the driver and the slots write there, or choose another directory"
)
_NO_DIRECTORY = "there is a file in place of a directory: choose another directory"
_ADVICE = {
    errno.ENOSPC: _NO_SPACE,
    errno.EDQUOT: _NO_SPACE,
    errno.EFBIG: _NO_SPACE,
    errno.EACCES: _NO_RIGHT,
    errno.EPERM: _NO_RIGHT,
    errno.EROFS: _NO_RIGHT,
    errno.ENOTDIR: _NO_DIRECTORY,
    errno.EEXIST: _NO_DIRECTORY,
    errno.EISDIR: "there is a directory in place of a file: choose another directory",
}
_IN_WORDS = {"access_denied": _NO_RIGHT, "accessdenied": _NO_RIGHT, "accesscontrol": _NO_RIGHT}
_BUCKET = "create the bucket, or correct its name"


@contextmanager
def storage_errors(location: str) -> Iterator[None]:
    """Translate errors of file systems to StorageError, and a missing file to BlobNotFound."""
    try:
        yield
    except FileNotFoundError:
        raise BlobNotFound(location) from None
    except OSError as error:
        raise storage_error(location, error) from error


class GuardedWriter:
    """A file that raises StorageError when it cannot be written."""

    def __init__(self, location: str, file: BlobWriter) -> None:
        self._location = location
        self._file = file

    def write(self, data: bytes) -> object:
        with storage_errors(self._location):
            return self._file.write(data)


def storage_error(location: str, error: Exception) -> StorageError:
    code = error.errno if isinstance(error, OSError) else None
    text = (error.strerror if isinstance(error, OSError) else None) or str(error)
    advice = _ADVICE.get(code) if code is not None else None
    if advice is None:
        advice = _advice_by_words(text)
    return StorageError(location, text.partition("\n")[0] or type(error).__name__, advice)


def _advice_by_words(text: str) -> str:
    words = text.lower()
    if "bucket" in words and ("no_such" in words or "nosuch" in words or "not exist" in words):
        return _BUCKET
    found = (advice for word, advice in _IN_WORDS.items() if word in words)
    return next(found, "check whether the storage can be reached from this machine")
