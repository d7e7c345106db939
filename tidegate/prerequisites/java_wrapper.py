"""A JAVA_HOME for Spark, wrapping a Java that lacks a module that Spark requests."""

import hashlib
import shlex
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

from tidegate.core.errors import ExternalError

VECTOR_MODULE = "jdk.incubator.vector"
_SCRIPT = """\
#!/bin/sh
# Spark requests a module that this Java lacks and that only MLlib would use: skip it.
for argument do
  shift
  [ "$argument" = --add-modules={module} ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""


def wrapper_folders() -> tuple[Path, ...]:
    """The folders for wrappers, the best one first."""
    shared = Path(sys.prefix, "share", "tidegate")
    try:
        return (shared, Path.home() / ".cache" / "tidegate")
    except RuntimeError:  # the user has no home
        return (shared,)


def wrap_java(home: Path, folders: Iterable[Path]) -> Path:
    """Return a folder whose ``bin/java`` is the Java of ``home``, fit to be Spark's JAVA_HOME.

    Raises:
        ExternalError: none of the folders can be written to.
    """
    name = f"java-{hashlib.sha256(bytes(home)).hexdigest()[:12]}"
    script = _SCRIPT.format(module=VECTOR_MODULE, java=shlex.quote(str(home / "bin" / "java")))
    failures = []
    for folder in folders:
        wrapper = folder / name
        try:
            _publish(script, wrapper / "bin" / "java")
        except OSError as error:
            failures.append(str(error))
        else:
            return wrapper
    raise ExternalError(
        f"the Java at {home} needs a small script to run Spark, which could not be written: "
        f"{'; '.join(failures)}; make one of these folders writable, or install a full Java"
    )


def _publish(script: str, path: Path) -> None:
    """Write an executable atomically: other processes may be about to start it."""
    if path.exists() and path.read_text(encoding="utf-8") == script:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(
        "w", dir=path.parent, encoding="utf-8", delete=False
    ) as unfinished:
        unfinished.write(script)
    Path(unfinished.name).chmod(0o755)
    Path(unfinished.name).replace(path)
