"""All checks, in reading order."""

import os
import sys
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path

from tidegate.prerequisites.check import Check, missing, ok, warning
from tidegate.prerequisites.java import check_java
from tidegate.prerequisites.machine import (
    check_cores,
    check_host_name,
    check_loopback,
    check_memory,
    check_temporary_directory,
    check_unix_sockets,
)
from tidegate.prerequisites.packages import (
    EXTRAS,
    REQUIREMENTS,
    check_extra,
    check_package,
    check_python,
    check_spark,
    spark_minor,
)


def check_spark_home(environ: Mapping[str, str] = os.environ, pyspark: str | None = None) -> Check:
    """Report a SPARK_HOME of another version: its Java and Python sides do not match."""
    home = environ.get("SPARK_HOME")
    if not home:
        return ok("SPARK_HOME", "not set, PySpark's own jars are used")
    versions = sorted(
        jar.stem.rpartition("-")[2] for jar in Path(home, "jars").glob("spark-core_*.jar")
    )
    wanted = spark_minor(pyspark or metadata.version("pyspark"))
    if any(spark_minor(version) == wanted for version in versions):
        return ok("SPARK_HOME", f"Spark {versions[0]} at {home}")
    found = f"Spark {', '.join(versions)}" if versions else "no Spark"
    advice = f"unset SPARK_HOME, or point it to a Spark {wanted}"
    return missing("SPARK_HOME", f"{found} at {home}", advice)


def check_spark_connect(environ: Mapping[str, str] = os.environ) -> Check:
    """Report a shell that makes PySpark a Spark Connect client, which has no RDDs."""
    remote = environ.get("SPARK_REMOTE")
    if remote:
        advice = "unset SPARK_REMOTE: Tidegate runs on classic PySpark, not on Spark Connect"
        return missing("SPARK_REMOTE", remote, advice)
    return ok("SPARK_REMOTE", "not set, PySpark is classic")


def check_worker_python(environ: Mapping[str, str] = os.environ) -> Check:
    python = environ.get("PYSPARK_PYTHON")
    if not python:
        return ok("PYSPARK_PYTHON", "not set, workers get the running Python")
    if Path(python) == Path(sys.executable):
        return ok("PYSPARK_PYTHON", python)
    advice = "workers need this Python's version and packages; unset it to give them this one"
    return warning("PYSPARK_PYTHON", python, advice)


def examine() -> list[Check]:
    """Check everything that Tidegate needs; takes as long as starting a Java."""
    return [
        check_python(),
        check_java(),
        *map(check_package, REQUIREMENTS),
        check_spark(),
        check_spark_home(),
        check_spark_connect(),
        check_worker_python(),
        check_cores(),
        check_memory(),
        check_temporary_directory(),
        check_loopback(),
        check_host_name(),
        check_unix_sockets(),
        *(check_extra(extra, names) for extra, names in EXTRAS.items()),
    ]
