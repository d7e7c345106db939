"""Java installations that are shell scripts."""

import textwrap
from pathlib import Path


def fake_java(home: Path, version: str, *, modules: str = "jdk.incubator.vector@17") -> Path:
    """Install a script that answers as a Java of this version with these modules would."""
    specification = version.removeprefix("1.").partition("-")[0].partition(".")[0]
    return script(
        home,
        f"""
        case "$*" in *--list-modules*) [ {specification} -ge 9 ] || exit 1; echo '{modules}' ;; esac
        echo 'Property settings:' >&2
        echo '    java.home = {home}' >&2
        echo '    java.specification.version = {specification}' >&2
        echo '    java.version = {version}' >&2
        """,
    )


def script(home: Path, body: str) -> Path:
    executable = home / "bin" / "java"
    executable.parent.mkdir(parents=True)
    executable.write_text("#!/bin/sh\n" + textwrap.dedent(body))
    executable.chmod(0o755)
    return home
