"""Paths and URLs: their file system, and the path in it."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote, urlsplit

import pyarrow as pa
from pyarrow import fs

from tidegate.core.errors import StorageError
from tidegate.core.redaction import redacted


def is_url(path: str) -> bool:
    return "://" in path


def local_path(path: str) -> Path | None:
    """The local location of a path or `file://` URL; None: it is elsewhere."""
    if not is_url(path):
        return Path(path).absolute()
    if urlsplit(path).scheme == "file":
        return Path(fs.FileSystem.from_uri(path)[1])
    return None


def resolve(path: str) -> tuple[fs.FileSystem, str]:
    """The file system of a path or URL, and the path in it.

    Arrow's own file systems come first; fsspec, if installed, provides others.
    """
    if not is_url(path):
        return fs.LocalFileSystem(), str(Path(path).absolute())
    try:
        return fs.FileSystem.from_uri(path)
    except pa.ArrowInvalid as error:
        if "Unrecognized filesystem" not in str(error):
            raise StorageError(shown(path), str(error), "correct the URL") from None
        file_system, inner = fsspec_file_system(path)
        handler: Any = fs.FSSpecHandler
        return fs.PyFileSystem(handler(file_system)), inner
    except (pa.ArrowKeyError, OSError) as error:
        problem = str(error).partition("\n")[0]
        raise StorageError(
            shown(path), f"no file system for it: {problem}", _advice(path)
        ) from None


def below(root: str, inner: str) -> str:
    """The path or URL of something in a directory; a URL keeps its settings after the "?"."""
    if not is_url(root):
        return str(Path(root).absolute() / inner)
    address, mark, settings = root.partition("?")
    return f"{address.rstrip('/')}/{quote(inner)}{mark}{settings}"


def parent_and_name(path: str) -> tuple[str, str]:
    """The parent directory of a path or URL, and the name in it: the inverse of `below`."""
    if not is_url(path):
        location = Path(path).absolute()
        return str(location.parent), location.name
    address, mark, settings = path.partition("?")
    parent, _, name = address.rstrip("/").rpartition("/")
    return f"{parent}{mark}{settings}", unquote(name)


def shown(url: str) -> str:
    """A URL for messages, without credentials."""
    return redacted(url) if is_url(url) else url


def fsspec_file_system(url: str) -> tuple[Any, str]:
    """The fsspec file system for a URL, and the path in it."""
    try:
        from fsspec.core import url_to_fs
    except ImportError:
        raise StorageError(
            shown(url),
            f"no file system for it: {urlsplit(url).scheme}:// requires fsspec",
            "install fsspec and its package for this scheme, such as `pip install fsspec adlfs`",
        ) from None
    try:
        file_system, inner = url_to_fs(url)
    except (ImportError, ValueError) as error:
        raise StorageError(
            shown(url), f"no file system for it: {error}", "install the package of this scheme"
        ) from None
    return file_system, inner


def _advice(url: str) -> str:
    if urlsplit(url).scheme in ("hdfs", "viewfs"):
        return (
            "set JAVA_HOME, HADOOP_HOME and CLASSPATH so that libhdfs and Hadoop's jars are found"
        )
    return "correct the URL, or check whether the storage can be reached from this machine"


def checked(path: str, where: str) -> str:
    """Check that a path stays below the directory that it is relative to."""
    if path.startswith("/") or "\0" in path or ".." in path.split("/"):
        raise StorageError(where, f"{path!r} leads out of this directory", "use a relative path")
    return path.strip("/")
