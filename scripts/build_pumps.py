"""Compiles the pumps of the pipelined exchange into the jar that the wheel ships.

Needs a JDK of version 17; users and tests need only the jar. The same source and the same compiler
give the same bytes.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import pyspark

ROOM = Path(__file__).resolve().parent.parent / "tidegate" / "exchange" / "pipelined"
SOURCE = ROOM / "Pumps.java"
JAR = ROOM / "pumps.jar"
RELEASE = "17"
_NO_TIME = (1980, 1, 1, 0, 0, 0)


def classes() -> dict[str, bytes]:
    """The compiled classes, by their path in the jar."""
    jars = Path(pyspark.__file__).parent / "jars" / "*"
    with tempfile.TemporaryDirectory() as build:
        subprocess.run(
            ["javac", "--release", RELEASE, "-g:none", "-nowarn", "-cp", jars, "-d", build, SOURCE],
            check=True,
        )
        return {
            str(path.relative_to(build)): path.read_bytes()
            for path in sorted(Path(build).rglob("*.class"))
        }


def main() -> int:
    with zipfile.ZipFile(JAR, "w", zipfile.ZIP_DEFLATED) as jar:
        for name, content in classes().items():
            jar.writestr(zipfile.ZipInfo(name, _NO_TIME), content, zipfile.ZIP_DEFLATED)
    return 0


if __name__ == "__main__":
    sys.exit(main())
